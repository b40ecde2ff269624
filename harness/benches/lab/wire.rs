//! Kafka traffic between raw sockets: a broker that answers each Fetch with as many bytes as it asks for, and two clients.
//!
//! Every frame is a real Fetch of version 4, so that the link counts, matches and decodes what it carries. Threads and
//! blocking sockets on both ends: what a proxy costs is then all that differs between two paths.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Length of a request.
pub(crate) const REQUEST: usize = 64;
/// Requests that a bulk client keeps in flight, as librdkafka and the Java client do at most for one broker.
const IN_FLIGHT: usize = 5;
/// What a client reads at once.
const READ: usize = 256 << 10;
const CORRELATION: std::ops::Range<usize> = 8..12;
/// `max_bytes` of the request, which this broker takes for the length of the answer.
const MAX_BYTES: std::ops::Range<usize> = 28..32;

fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut frame = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

fn request(answer: usize) -> [u8; REQUEST] {
    let max_bytes = u32::try_from(answer).unwrap().to_be_bytes();
    let frame = framed(&[
        &[0, 1, 0, 4, 0, 0, 0, 0],           // Fetch, version 4, correlation id
        &[0, 2, b'r', b'1'],                 // client id
        &[255, 255, 255, 255, 0, 0, 1, 244], // replica id, longest wait
        &[0, 0, 0, 1],                       // fewest bytes
        &max_bytes,
        &[0, 0, 0, 0, 1, 0, 5], // isolation, one topic
        b"bench",
        &[0, 0, 0, 1, 0, 0, 0, 0],              // one partition
        &[0, 0, 0, 0, 0, 0, 0, 7, 0, 16, 0, 0], // offset, most bytes
    ]);
    frame.try_into().unwrap()
}

fn response(len: usize) -> Vec<u8> {
    const BEFORE_RECORDS: usize = 57;
    let records = u32::try_from(len - BEFORE_RECORDS).unwrap();
    framed(&[
        &[0; 8],             // correlation id, throttle time
        &[0, 0, 0, 1, 0, 5], // one topic
        b"bench",
        &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0], // one partition, no error
        &[0, 0, 0, 0, 0, 0, 0, 9],       // high watermark
        &[0, 0, 0, 0, 0, 0, 0, 9],       // last stable offset
        &[0; 4],                         // no aborted transactions
        &records.to_be_bytes(),
        &vec![b'x'; records as usize],
    ])
}

/// Starts the broker. It lives until the bench ends.
pub(crate) fn broker() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || answer(client));
        }
    });
    address
}

/// Ends with the client.
fn answer(client: TcpStream) {
    client.set_nodelay(true).unwrap();
    let mut from = BufReader::with_capacity(64 << 10, client.try_clone().unwrap());
    let mut to = client;
    let mut asked = [0; REQUEST];
    let mut ready = Vec::new();
    while from.read_exact(&mut asked).is_ok() {
        let len = u32::from_be_bytes(asked[MAX_BYTES].try_into().unwrap()) as usize;
        if ready.len() != len {
            ready = response(len);
        }
        ready[4..8].copy_from_slice(&asked[CORRELATION]);
        if to.write_all(&ready).is_err() {
            return;
        }
    }
}

/// One connection through a path.
pub(crate) struct Client {
    stream: TcpStream,
    correlation: u32,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects and takes one answer, so that the whole path stands, and looks that it is what the broker sends.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Client {
            stream,
            correlation: 0,
            buffer: vec![0; READ],
        };
        client.ask(REQUEST, 1);
        let mut expected = response(REQUEST);
        expected[4..8].copy_from_slice(&client.correlation.to_be_bytes());
        let mut answered = [0; REQUEST];
        client.stream.read_exact(&mut answered).unwrap();
        assert_eq!(answered[..], expected[..], "a path must change nothing");
        client
    }

    fn ask(&mut self, answer: usize, times: usize) {
        let mut asked = Vec::with_capacity(times * REQUEST);
        for _ in 0..times {
            self.correlation += 1;
            let mut one = request(answer);
            one[CORRELATION].copy_from_slice(&self.correlation.to_be_bytes());
            asked.extend(one);
        }
        self.stream.write_all(&asked).unwrap();
    }

    /// Fetches `frames` answers of `len` bytes and says how long it took.
    pub(crate) fn bulk(&mut self, len: usize, frames: usize) -> Duration {
        let started = Instant::now();
        let mut asked = IN_FLIGHT.min(frames);
        self.ask(len, asked);
        let (mut got, wanted) = (0, len * frames);
        while got < wanted {
            let read = self.stream.read(&mut self.buffer).unwrap();
            assert!(read > 0, "the path ended after {got} of {wanted} bytes");
            got += read;
            let more = (got / len + IN_FLIGHT).min(frames) - asked;
            if more > 0 {
                self.ask(len, more);
                asked += more;
            }
        }
        started.elapsed()
    }

    /// The times of `count` round trips, microseconds, sorted.
    pub(crate) fn round_trips(&mut self, count: usize) -> Vec<f64> {
        let mut answered = [0; REQUEST];
        let mut one = request(REQUEST);
        let mut times: Vec<f64> = (0..count)
            .map(|_| {
                self.correlation += 1;
                one[CORRELATION].copy_from_slice(&self.correlation.to_be_bytes());
                let started = Instant::now();
                self.stream.write_all(&one).unwrap();
                self.stream.read_exact(&mut answered).unwrap();
                started.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        assert_eq!(answered[4..8], one[CORRELATION], "answers must come in order");
        times.sort_by(f64::total_cmp);
        times
    }
}
