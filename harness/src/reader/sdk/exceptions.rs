//! Rust errors as data: types fully qualified and verbatim, codes as the library names them, the chain of causes.

use std::any::Any;
use std::error::Error;

use brokerfall_report::exception::{Code, Exception, Relation};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// An exception with a type and a message and nothing below it.
pub fn plain(type_name: &str, message: &str) -> Box<Exception> {
    Box::new(Exception {
        type_name: type_name.to_owned(),
        code: None,
        attributes: Default::default(),
        message: message.to_owned(),
        relation: None,
        children: Vec::new(),
        frames: Vec::new(),
    })
}

/// An error of rdkafka: the variant is the type, librdkafka's code is the code (in the spelling of rdkafka's enum), and
/// librdkafka's own sentence, which the error does not carry, becomes the attribute `reason`.
pub fn kafka(error: &KafkaError, reason: Option<&str>) -> Box<Exception> {
    let mut exception = plain(
        &format!("rdkafka::error::KafkaError::{}", variant(error)),
        &error.to_string(),
    );
    exception.code = error.rdkafka_error_code().map(code);
    if let Some(reason) = reason {
        exception.attributes.insert("reason".to_owned(), reason.into());
    }
    exception.children = causes(error);
    exception
}

/// A caught panic. Its payload is a string whenever it came from `panic!`; anything else has no message.
pub fn panic(payload: &(dyn Any + Send)) -> Box<Exception> {
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "",
    };
    plain("panic", message)
}

/// Everything that an error was caused by, as a chain. The type of a cause is known only for the types of rdkafka: a
/// `dyn Error` does not tell its own.
fn causes(error: &dyn Error) -> Vec<Exception> {
    let Some(source) = error.source() else {
        return Vec::new();
    };
    let mut cause = match source.downcast_ref::<RDKafkaErrorCode>() {
        Some(found) => {
            let mut cause = plain("rdkafka::types::RDKafkaErrorCode", &found.to_string());
            cause.code = Some(code(*found));
            cause
        }
        None => plain("dyn core::error::Error", &source.to_string()),
    };
    cause.relation = Some(Relation::Cause);
    cause.children = causes(source);
    vec![*cause]
}

fn code(code: RDKafkaErrorCode) -> Code {
    Code {
        value: i64::from(code as i32),
        name: format!("{code:?}"),
    }
}

fn variant(error: &KafkaError) -> &'static str {
    match error {
        KafkaError::AdminOpCreation(_) => "AdminOpCreation",
        KafkaError::AdminOp(_) => "AdminOp",
        KafkaError::Canceled => "Canceled",
        KafkaError::ClientConfig(..) => "ClientConfig",
        KafkaError::ClientCreation(_) => "ClientCreation",
        KafkaError::ConsumerCommit(_) => "ConsumerCommit",
        KafkaError::ConsumerQueueClose(_) => "ConsumerQueueClose",
        KafkaError::Flush(_) => "Flush",
        KafkaError::Global(_) => "Global",
        KafkaError::GroupListFetch(_) => "GroupListFetch",
        KafkaError::MessageConsumption(_) => "MessageConsumption",
        KafkaError::MessageConsumptionFatal(_) => "MessageConsumptionFatal",
        KafkaError::MessageProduction(_) => "MessageProduction",
        KafkaError::MetadataFetch(_) => "MetadataFetch",
        KafkaError::NoMessageReceived => "NoMessageReceived",
        KafkaError::Nul(_) => "Nul",
        KafkaError::OffsetFetch(_) => "OffsetFetch",
        KafkaError::PartitionEOF(_) => "PartitionEOF",
        KafkaError::PauseResume(_) => "PauseResume",
        KafkaError::Rebalance(_) => "Rebalance",
        KafkaError::Seek(_) => "Seek",
        KafkaError::SetPartitionOffset(_) => "SetPartitionOffset",
        KafkaError::StoreOffset(_) => "StoreOffset",
        KafkaError::Subscription(_) => "Subscription",
        KafkaError::Transaction(_) => "Transaction",
        KafkaError::MockCluster(_) => "MockCluster",
        // The enum is non-exhaustive: a variant that a later release adds is still told apart by its code.
        _ => "(unknown variant)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafka_error_keeps_variant_code_and_cause() {
        let error = KafkaError::MessageConsumption(RDKafkaErrorCode::TopicAuthorizationFailed);
        let exception = kafka(&error, Some("Fetch failed"));
        assert_eq!(
            exception.chain(),
            "rdkafka::error::KafkaError::MessageConsumption(29 TopicAuthorizationFailed) <- \
             rdkafka::types::RDKafkaErrorCode(29 TopicAuthorizationFailed)"
        );
        assert_eq!(exception.attributes["reason"], "Fetch failed");
        assert_eq!(exception.children[0].relation, Some(Relation::Cause));
    }

    #[test]
    fn local_codes_keep_their_negative_numbers() {
        let exception = kafka(&KafkaError::Global(RDKafkaErrorCode::AllBrokersDown), None);
        assert_eq!(
            exception.label(),
            "rdkafka::error::KafkaError::Global(-187 AllBrokersDown)"
        );
    }

    #[test]
    fn panic_payload_becomes_the_message() {
        let payload = std::panic::catch_unwind(|| panic!("at {}", 7)).unwrap_err();
        let exception = panic(payload.as_ref());
        assert_eq!(
            (exception.type_name.as_str(), exception.message.as_str()),
            ("panic", "at 7")
        );
    }
}
