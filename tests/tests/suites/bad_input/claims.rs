//! `[[claim]]`: what is asked is told, whatever it does it ends with the run, and what cannot be asked is refused.

use super::bench::Bench;

/// A repository with a reader of its own and these claims.
fn repository(claims: &str) -> Bench {
    let bench = Bench::new();
    bench.reader("mine", "assign", &["{program}", "reader", "reference-assign"]);
    bench.write(
        "brokerfall.toml",
        format!("readers-dir = \"readers\"\nout = \"out\"\n{claims}"),
    );
    bench
}

fn claimed(bench: &Bench) -> Vec<String> {
    let lines = bench.report().runs.remove(0).columns.claimed;
    lines.into_iter().map(|line| line.text).collect()
}

#[test]
fn programs_are_asked_bounded_and_leave_nothing_behind() {
    // It prints without end, and starts what would outlive it.
    bench_script(
        "yes & sleep 1000 & echo $BROKERFALL_PORT $BROKERFALL_MEMBER {port} > asked; exit 0",
        0,
        "probe healthy (exit status: 0)",
    );
    // It does not end, and neither does what it started.
    bench_script("sleep 1000 & yes", 11, "probe not healthy (no end within 300ms)");
    bench_script("exit 3", 11, "probe not healthy (exit status: 3)");
}

#[track_caller]
fn bench_script(script: &str, code: i32, wanted: &str) {
    let bench = repository(&format!(
        "[[claim]]\nname = \"probe\"\nexec = [\"sh\", \"-c\", {script:?}]\nevery = \"300ms\"\n"
    ));
    // A claim that is never green is undecided, which voids a run that names the invariant.
    bench.write(
        "live.toml",
        "format = 1\ntitle = \"x\"\nphase = \"live\"\nload = { rate = \"50/s\", until = \"end\" }\n[[topic]]\nname = \"t\"\n\
         preload = { records = 100 }\n[[step]]\ndo = { kill-broker = { broker = \"leader\" } }\n[[step]]\nafter = \"1s\"\n\
         heal = \"all\"\n[expect]\nstatus_honest = {}\n",
    );
    let ended = bench.run(["run", "live.toml", "--reader", "mine"]);
    ended.assert_code(code);
    let claimed = claimed(&bench);
    assert!(claimed.iter().any(|line| line.contains(wanted)), "{claimed:?}");
    if let Ok(asked) = std::fs::read_to_string(bench.path("asked")) {
        let words: Vec<&str> = asked.split_whitespace().collect();
        assert!(words[0] == words[2] && words[1] == "r1", "{asked}");
    }
    bench.assert_clean();
}

#[test]
fn place_that_several_runs_would_share_is_refused() {
    let claim = |host: &str| format!("[[claim]]\nname = \"ready\"\nhttp = \"http://{host}/ready\"\n");
    let bench = repository(&claim("127.0.0.1:1"));
    bench
        .run(["run", "control/idle", "--reader", "mine", "--jobs", "2"])
        .assert_code(2)
        .assert_complains(
            "the claim `ready` is asked at one port, which 2 runs at a time would share (write {port} there",
        );
    bench
        .run(["run", "control/idle", "--reader", "mine", "--jobs", "1"])
        .assert_code(0);
    assert!(
        claimed(&bench).iter().any(|line| line.contains("connection refused")),
        "{:?}",
        claimed(&bench)
    );
    // A bundled reader has no endpoint.
    bench
        .run(["run", "control/idle", "--reader", "reference-assign", "--jobs", "2"])
        .assert_code(0);
    bench.write("brokerfall.toml", claim("192.0.2.1:80"));
    bench
        .run(["run", "control/idle"])
        .assert_code(2)
        .assert_complains("is not on a loopback address, and nothing else is asked");
}
