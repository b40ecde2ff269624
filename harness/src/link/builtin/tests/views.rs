use super::*;

const METADATA_VERSIONS: std::ops::RangeInclusive<i16> = 0..=13;

fn asking_for(names: &[&str]) -> RequestKind {
    let topics = names
        .iter()
        .map(|name| km::metadata_request::MetadataRequestTopic::default().with_name(Some(topic(name))));
    RequestKind::Metadata(km::MetadataRequest::default().with_topics(Some(topics.collect())))
}

/// Every topic: a null array, and an empty one where there is no null.
fn asking_for_all(version: i16) -> RequestKind {
    let topics = (version == 0).then(Vec::new);
    RequestKind::Metadata(km::MetadataRequest::default().with_topics(topics))
}

fn topics(response: ResponseKind) -> Vec<(Option<String>, i16, Vec<i32>)> {
    let ResponseKind::Metadata(answer) = response else {
        panic!("{response:?} is no Metadata")
    };
    let topic = |topic: km::metadata_response::MetadataResponseTopic| {
        let partitions = topic.partitions.iter().map(|partition| partition.partition_index);
        (
            topic.name.map(|name| name.to_string()),
            topic.error_code,
            partitions.collect(),
        )
    };
    answer.topics.into_iter().map(topic).collect()
}

/// What the cluster is asked for.
fn asked_upstream(lab: &mut Lab, version: i16, request: &RequestKind) -> Vec<String> {
    let sent = lab.encoded(version, request);
    let (passed, _) = lab.exchange.request(sent);
    let mut body = passed.slice(4..);
    let header_version = ApiKey::Metadata.request_header_version(version);
    Header::decode(&mut body, header_version).unwrap();
    let request = km::MetadataRequest::decode(&mut body, version).unwrap();
    let names = request.topics.unwrap_or_default();
    names.into_iter().map(|topic| topic.name.unwrap().to_string()).collect()
}

#[test]
fn hidden_topic_is_unknown_by_name_in_every_version_and_the_cluster_is_not_asked_for_it() {
    for version in METADATA_VERSIONS {
        let mut lab = Lab::new(false);
        lab.shared.views.hide("orders", "absent-topic-1");
        let ask = asking_for(&["orders", "other"]);
        let upstream = asked_upstream(&mut lab, version, &ask);
        // Without a topic version 0 would ask for all.
        assert_eq!(
            upstream,
            if version == 0 {
                vec!["orders", "other"]
            } else {
                vec!["other"]
            }
        );
        // What a cluster is not asked for it does not answer.
        let ResponseKind::Metadata(mut answer) = metadata(version, &[]) else {
            panic!("no Metadata")
        };
        answer
            .topics
            .retain(|topic| upstream.contains(&topic.name.as_ref().unwrap().to_string()));
        let mut told = topics(lab.through(version, &ask, &ResponseKind::Metadata(answer)));
        told.sort();
        let wanted = [(some("orders"), 3, vec![]), (some("other"), 0, vec![0, 1])];
        assert_eq!(told, wanted, "version {version}");
        assert_eq!(lab.shared.views.told("orders"), 1);
        let error = (
            "Metadata".to_owned(),
            3,
            some("orders"),
            None,
            some("absent-topic-1"),
            1,
        );
        assert_eq!(lab.errors(), [error]);
    }
}

#[test]
fn hidden_topic_is_left_out_where_all_topics_are_listed() {
    for version in METADATA_VERSIONS {
        let mut lab = Lab::new(false);
        lab.shared.views.hide("orders", "absent-topic-1");
        let told = topics(lab.through(version, &asking_for_all(version), &metadata(version, &[])));
        assert_eq!(told, [(some("other"), 0, vec![0, 1])], "version {version}");
        assert_eq!((lab.shared.views.told("orders"), lab.errors().len()), (1, 0));
    }
}

#[test]
fn hidden_topic_asked_for_by_its_id_is_an_unknown_id() {
    let mut lab = Lab::new(false);
    // The id is learnt while the topic is seen.
    lab.through(12, &asking_for(&["orders"]), &metadata(12, &[]));
    lab.shared.views.hide("orders", "absent-topic-1");
    let by_id = km::metadata_request::MetadataRequestTopic::default()
        .with_name(None)
        .with_topic_id(ORDERS_ID.parse().unwrap());
    let request = RequestKind::Metadata(km::MetadataRequest::default().with_topics(Some(vec![by_id])));
    let ResponseKind::Metadata(answer) = lab.through(12, &request, &metadata(12, &[])) else {
        panic!("no Metadata")
    };
    let told = &answer.topics[0];
    assert_eq!((told.error_code, told.name.as_ref()), (100, None));
    assert_eq!(told.topic_id.to_string(), ORDERS_ID);
    assert!(told.partitions.is_empty());
}

#[test]
fn fetch_and_offsets_of_a_hidden_topic_are_answered_unknown_and_shown_again_as_they_are() {
    let mut lab = Lab::new(false);
    lab.shared.topic_ids.learn(&[7; 16], "orders");
    lab.shared.views.hide("orders", "absent-topic-1");
    for (version, code) in [(4, 3), (11, 3), (12, 3), (13, 100), (16, 100)] {
        let ResponseKind::Fetch(answer) = lab.through(version, &fetch_request(), &fetch_response(version)) else {
            panic!("no Fetch")
        };
        for partition in &answer.responses[0].partitions {
            let told = (
                partition.error_code,
                partition.high_watermark,
                partition.records.clone(),
            );
            assert_eq!(told, (code, -1, Some(Bytes::new())), "version {version}");
        }
    }
    let listed = km::list_offsets_response::ListOffsetsPartitionResponse::default().with_offset(9);
    let listed = km::list_offsets_response::ListOffsetsTopicResponse::default()
        .with_name(topic("orders"))
        .with_partitions(vec![listed]);
    let listed = ResponseKind::ListOffsets(km::ListOffsetsResponse::default().with_topics(vec![listed]));
    let ask = RequestKind::ListOffsets(km::ListOffsetsRequest::default());
    let ResponseKind::ListOffsets(answer) = lab.through(5, &ask, &listed) else {
        panic!("no ListOffsets")
    };
    assert_eq!(
        (
            answer.topics[0].partitions[0].error_code,
            answer.topics[0].partitions[0].offset
        ),
        (3, -1)
    );
    let of_fault = |by: &Option<String>| by.as_deref() == Some("absent-topic-1");
    assert!(lab.errors().iter().all(|(.., by, _)| of_fault(by)));

    let counts = lab.shared.views.show("orders", "absent-topic-1");
    assert_eq!((counts.triggered, counts.undecodable), (6, 0));
    assert_eq!(lab.through(5, &ask, &listed), decoded(5, ApiKey::ListOffsets, &listed));
    assert_eq!(
        lab.through(11, &fetch_request(), &fetch_response(11)),
        decoded(11, ApiKey::Fetch, &fetch_response(11))
    );
}

#[test]
fn topic_hidden_twice_is_shown_when_the_second_fault_is_healed_too() {
    let mut lab = Lab::new(false);
    lab.shared.views.hide("orders", "absent-topic-1");
    lab.shared.views.hide("orders", "absent-topic-2");
    let ask = asking_for(&["orders"]);
    let mut code = |fault: &str| {
        lab.shared.views.show("orders", fault);
        topics(lab.through(5, &ask, &metadata(5, &[])))[0].1
    };
    assert_eq!((code("absent-topic-1"), code("absent-topic-2")), (3, 0));
    assert_eq!(lab.shared.views.told("orders"), 1);
}

#[test]
fn only_partitions_below_the_limit_are_shown_until_it_is_lifted() {
    for version in METADATA_VERSIONS {
        let mut lab = Lab::new(false);
        lab.shared.views.limit("orders", Some(1));
        for ask in [asking_for(&["orders", "other"]), asking_for_all(version)] {
            let told = topics(lab.through(version, &ask, &metadata(version, &[])));
            assert_eq!(told, [(some("orders"), 0, vec![0]), (some("other"), 0, vec![0, 1])]);
        }
        assert_eq!(lab.shared.views.told("orders"), 2);
        lab.shared.views.limit("orders", None);
        assert_eq!(lab.shared.views.told("orders"), 0);
        let told = topics(lab.through(version, &asking_for(&["orders"]), &metadata(version, &[])));
        assert_eq!(told[0], (some("orders"), 0, vec![0, 1]));
        assert_eq!(lab.shared.views.told("orders"), 1);
        assert!(lab.errors().is_empty());
    }
}

#[test]
fn fetch_of_a_partition_that_is_not_shown_is_answered_unknown_and_that_of_others_is_not() {
    let mut lab = Lab::new(false);
    lab.shared.views.limit("orders", Some(1));
    let ResponseKind::Fetch(answer) = lab.through(11, &fetch_request(), &fetch_response(11)) else {
        panic!("no Fetch")
    };
    let codes: Vec<_> = answer.responses[0]
        .partitions
        .iter()
        .map(|partition| partition.error_code)
        .collect();
    assert_eq!(codes, [0, 3]);
    assert_eq!(
        lab.errors(),
        [("Fetch".to_owned(), 3, some("orders"), Some(1), some("the link"), 1)]
    );
}

#[test]
fn response_that_cannot_be_decoded_counts_against_what_is_hidden() {
    let mut lab = Lab::new(false);
    lab.shared.views.hide("orders", "absent-topic-1");
    let (key, _) = lab.ask(11, &fetch_request());
    let mut bytes = lab.answer(key, 11, &fetch_response(11)).to_vec();
    bytes.truncate(14);
    lab.exchange.response(bytes.into());
    assert_eq!(lab.shared.views.show("orders", "absent-topic-1").undecodable, 1);
}
