use std::env;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

const MAGIC: &[u8; 4] = b"ENE1";
const HEADER_BYTES: usize = 16;
const BUFFER_BYTES: usize = 1 << 16;

pub const START: u32 = 2;
pub const READY: u32 = 3;
pub const HELLO: u32 = 1;
pub const RESET: u32 = 4;
pub const ACT: u32 = 5;
pub const STEP: u32 = 6;
pub const ERROR: u32 = 7;
pub const CLOSE: u32 = 8;

/// The connection to the host.
pub struct Link {
    input: BufReader<Box<dyn Read>>,
    output: Box<dyn Write>,
}

/// Begins a message: leaves room for its header.
pub fn begin(message: &mut Vec<u8>) {
    message.clear();
    message.resize(HEADER_BYTES, 0);
}

/// Connects; a program that the host has not started tries for a minute.
fn retried<T>(connect: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut num_left = if env::var_os("ENTITY_ENV_TOKEN").is_some() { 0 } else { 600 };
    loop {
        let result = connect();
        if result.is_ok() || num_left == 0 {
            return result;
        }
        num_left -= 1;
        thread::sleep(Duration::from_millis(100));
    }
}

impl Link {
    /// Connects to the address in the environment.
    pub fn connect() -> Result<Link, String> {
        let address = env::var("ENTITY_ENV_ADDRESS").map_err(|_| {
            "ENTITY_ENV_ADDRESS is not set: start this program with entity_env".to_string()
        })?;
        let fail = |error: io::Error| format!("cannot connect to {address}: {error}");
        if address == "stdio" {
            return Ok(Link::new(Box::new(io::stdin()), Box::new(io::stdout())));
        }
        #[cfg(unix)]
        if let Some(path) = address.strip_prefix("unix:") {
            let stream = retried(|| UnixStream::connect(path)).map_err(fail)?;
            let other = stream.try_clone().map_err(fail)?;
            return Ok(Link::new(Box::new(stream), Box::new(other)));
        }
        if let Some(place) = address.strip_prefix("tcp:").filter(|p| p.starts_with("127.0.0.1:")) {
            let stream = retried(|| TcpStream::connect(place)).map_err(fail)?;
            stream.set_nodelay(true).map_err(fail)?;
            let other = stream.try_clone().map_err(fail)?;
            return Ok(Link::new(Box::new(stream), Box::new(other)));
        }
        Err(format!(
            "ENTITY_ENV_ADDRESS must be stdio, unix:PATH or tcp:127.0.0.1:PORT, got {address:?}"
        ))
    }

    fn new(input: Box<dyn Read>, output: Box<dyn Write>) -> Link {
        Link { input: BufReader::with_capacity(BUFFER_BYTES, input), output }
    }

    /// Completes the header of a message and sends it; an error means that the host is gone.
    pub fn send(&mut self, kind: u32, message: &mut [u8]) -> io::Result<()> {
        let size = (message.len() - HEADER_BYTES) as u64;
        message[..4].copy_from_slice(MAGIC);
        message[4..8].copy_from_slice(&kind.to_le_bytes());
        message[8..HEADER_BYTES].copy_from_slice(&size.to_le_bytes());
        self.output.write_all(message)?;
        self.output.flush()
    }

    /// Receives a message, whose payload has at most `limit` bytes, and returns its kind. The end
    /// of the connection between two messages counts as CLOSE.
    pub fn receive(&mut self, payload: &mut Vec<u8>, limit: u64) -> Result<u32, String> {
        let early = || "the connection has ended within a message".to_string();
        let mut header = [0; HEADER_BYTES];
        if self.input.read_exact(&mut header[..1]).is_err() {
            return Ok(CLOSE);
        }
        self.input.read_exact(&mut header[1..]).map_err(|_| early())?;
        let [kind, low, high] =
            [4, 8, 12].map(|at| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i])));
        let size = u64::from(low) | u64::from(high) << 32;
        if &header[..4] != MAGIC {
            return Err("a message does not start with ENE1".to_string());
        }
        if size % 8 != 0 || size > limit {
            return Err(format!(
                "a message has {size} bytes, expected a multiple of 8, at most {limit}"
            ));
        }
        payload.clear();
        // The memory grows with the bytes that have arrived.
        match self.input.by_ref().take(size).read_to_end(payload) {
            Ok(count) if count as u64 == size => Ok(kind),
            _ => Err(early()),
        }
    }
}
