//! A small HTTP server for `GET /metrics`: one thread, HTTP/1.0.
//!
//! A client has two seconds and 8 KiB for its request. What it asks for is never anything but the
//! metrics, so there is nothing to configure.
//!
//! The server has no password, and a browser of this machine can reach it. A page from elsewhere
//! cannot read the answer, unless its name is made to lead to this machine after the browser has
//! loaded it (DNS rebinding). The browser then asks for that name. So a request that names another
//! host than `localhost` or a loopback address is refused.
//!
//! Clients are served side by side, the newest first, and none is waited for. When there are too
//! many, the oldest is cut off: clients that connect and say nothing keep no other from being
//! served.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// For a request and its answer.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// The longest request.
const REQUEST_LIMIT_BYTES: usize = 8 << 10;
/// Clients at a time.
const CLIENT_COUNT_MAX: usize = 64;
/// How long the port of a daemon that is just ending is waited for.
const PORT_WAIT: Duration = Duration::from_secs(1);
/// How long is waited after a client could not be accepted: too many open files, perhaps.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens on `address`, which must be a loopback address: the counters are for this machine.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        let text = "metrics are served on loopback addresses only (127.0.0.1, [::1])";
        return Err(std::io::Error::new(ErrorKind::InvalidInput, text));
    }
    let give_up = Instant::now() + PORT_WAIT;
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

/// Serves what `render` gives (nothing: not now) in a thread of its own while `work` runs.
pub fn serve_during<T>(
    listener: &TcpListener,
    render: &(dyn Fn() -> Option<String> + Sync),
    work: impl FnOnce() -> T,
) -> T {
    let stopping = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let body = || serve(listener, &stopping, render, TIME_LIMIT);
        let thread = std::thread::Builder::new().name("oj-metrics".into());
        if let Err(error) = thread.spawn_scoped(scope, body) {
            tracing::error!(%error, "no thread for the metrics");
        }
        let result = work();
        stopping.store(true, Ordering::SeqCst);
        // Wakes the thread; if there is no room for one more client, it is awake.
        let wake = |address| TcpStream::connect_timeout(&address, TIME_LIMIT);
        let _ = listener.local_addr().and_then(wake);
        result
    })
}

fn serve(
    listener: &TcpListener,
    stopping: &AtomicBool,
    render: &(dyn Fn() -> Option<String> + Sync),
    time_limit: Duration,
) {
    if let Err(error) = listener.set_nonblocking(true) {
        return tracing::error!(%error, "no metrics");
    }
    // The oldest first.
    let mut clients: Vec<Client> = Vec::new();
    loop {
        wait(listener, &clients);
        if stopping.load(Ordering::SeqCst) {
            return;
        }
        accept_all(listener, &mut clients, time_limit);
        for index in (0..clients.len()).rev() {
            if clients[index].is_done(render) {
                clients.remove(index);
            }
        }
    }
}

/// Returns when a client has come, or can go on, or has had its time.
fn wait(listener: &TcpListener, clients: &[Client]) {
    let give_up = clients.iter().map(|client| client.give_up).min();
    let left = give_up.map(|give_up| give_up.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let mut wanted: Vec<PollFd<'_>> = clients.iter().map(Client::wanted).collect();
    wanted.push(PollFd::new(listener, PollFlags::IN));
    // When it fails, each of them is tried.
    let _ = poll(&mut wanted, left.as_ref());
}

fn accept_all(listener: &TcpListener, clients: &mut Vec<Client>, time_limit: Duration) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if clients.len() == CLIENT_COUNT_MAX {
                    clients.remove(0);
                }
                if stream.set_nonblocking(true).is_ok() {
                    clients.push(Client::new(stream, time_limit));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::debug!(%error, "a client of the metrics");
                std::thread::sleep(ACCEPT_PAUSE);
                return;
            }
        }
    }
}

/// A connection, which does not block.
struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    /// What is left to be sent, once the request is there.
    answer: Option<Vec<u8>>,
    give_up: Instant,
}

impl Client {
    fn new(stream: TcpStream, time_limit: Duration) -> Client {
        let give_up = Instant::now() + time_limit;
        Client { stream, request: Vec::new(), answer: None, give_up }
    }

    fn wanted(&self) -> PollFd<'_> {
        let what = if self.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
        PollFd::new(&self.stream, what)
    }

    /// Goes on as far as it can without waiting; whether nothing is left to be done.
    fn is_done(&mut self, render: &(dyn Fn() -> Option<String> + Sync)) -> bool {
        match self.go_on(render) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Instant::now() >= self.give_up,
            Err(error) => {
                tracing::debug!(%error, "a client of the metrics");
                true
            }
        }
    }

    fn go_on(&mut self, render: &(dyn Fn() -> Option<String> + Sync)) -> std::io::Result<()> {
        if self.answer.is_none() {
            self.read_request()?;
        }
        let answer = self.answer.get_or_insert_with(|| answer_to(&self.request, render));
        while !answer.is_empty() {
            match self.stream.write(answer) {
                Ok(count) => drop(answer.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads up to the empty line, the limit, or the end.
    fn read_request(&mut self) -> std::io::Result<()> {
        let mut piece = [0; 1024];
        while !is_whole(&self.request) {
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => self.request.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_whole(request: &[u8]) -> bool {
    request.len() >= REQUEST_LIMIT_BYTES || request.windows(4).any(|end| end == b"\r\n\r\n")
}

fn answer_to(request: &[u8], render: &(dyn Fn() -> Option<String> + Sync)) -> Vec<u8> {
    let (status, body) = match judge(request) {
        Ok(()) => match render() {
            Some(body) => ("200 OK", body),
            None => ("503 Service Unavailable", "the volume is closed\n".into()),
        },
        Err(MISDIRECTED) => (
            MISDIRECTED,
            format!(
                "{MISDIRECTED}; the metrics are for this machine: \
                 ask for them at localhost, 127.0.0.1 or [::1]\n"
            ),
        ),
        Err(status) => (status, format!("{status}; GET /metrics is all there is\n")),
    };
    let len_bytes = body.len();
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {len_bytes}\r\nConnection: close\r\n\r\n"
    );
    (head + &body).into_bytes()
}

const BAD: &str = "400 Bad Request";
const MISDIRECTED: &str = "421 Misdirected Request";

/// The status of a request that is not answered with the metrics.
fn judge(request: &[u8]) -> Result<(), &'static str> {
    let end = request.windows(4).position(|end| end == b"\r\n\r\n").ok_or(BAD)?;
    let head = std::str::from_utf8(&request[..end]).map_err(|_| BAD)?;
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, path, version] = words[..] else { return Err(BAD) };
    if !version.starts_with("HTTP/1.") {
        return Err(BAD);
    }
    let headers = lines.filter_map(|line| line.split_once(':'));
    let mut hosts = headers.filter(|(name, _)| name.trim().eq_ignore_ascii_case("host"));
    if !hosts.all(|(_, host)| is_this_machine(host.trim())) {
        return Err(MISDIRECTED);
    }
    match (method, path.split('?').next()) {
        ("GET", Some("/metrics")) => Ok(()),
        ("GET", _) => Err("404 Not Found"),
        _ => Err("405 Method Not Allowed"),
    }
}

/// Whether a `Host` is `localhost` or a loopback address, with or without a port. The port may be
/// that of a tunnel.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let address = match in_brackets {
        Some(address) => address.parse::<Ipv6Addr>().map(IpAddr::V6),
        None => name.parse::<Ipv4Addr>().map(IpAddr::V4),
    };
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_served() {
        let status = |text: &str| judge(text.as_bytes());
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), Ok(()));
        assert_eq!(status("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), Ok(()));
        assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), Err("404 Not Found"));
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), Err("405 Method Not Allowed"));
        for bad in ["", "\r\n\r\n", "GET /metrics\r\n\r\n", "GET /metrics HTTP/1.1\r\n", "\0 \0 \0"]
        {
            assert_eq!(status(bad), Err("400 Bad Request"), "{bad:?}");
        }
    }

    #[test]
    fn regression_only_this_machine_is_a_host() {
        let status = |host: &str| {
            judge(format!("GET /metrics HTTP/1.1\r\nA: b\r\n{host}\r\n\r\n").as_bytes())
        };
        let ours = ["localhost", "LocalHost", "127.0.0.1", "127.3.2.1", "[::1]"];
        for host in ours {
            for port in ["", ":19137", ":1"] {
                for header in ["Host: ", "host:", "HOST:\t "] {
                    let host = format!("{header}{host}{port}");
                    assert_eq!(status(&host), Ok(()), "{host}");
                }
            }
        }
        for host in [
            "evil.example",
            "evil.example:19137",
            "localhost.evil.example",
            "127.0.0.1.evil.example:19137",
            "192.0.2.1",
            "0.0.0.0:19137",
            "[::]",
            "[2001:db8::1]:19137",
            "localhost:19137:evil",
            "",
        ] {
            assert_eq!(status(&format!("Host: {host}")), Err(MISDIRECTED), "{host}");
            let twice = format!("Host: localhost\r\nhost: {host}");
            assert_eq!(status(&twice), Err(MISDIRECTED), "{twice}");
        }
        assert_eq!(status("Host : evil.example"), Err(MISDIRECTED));
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request).unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer); // a request that is cut off ends in a reset
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn it_serves_while_the_work_goes_on_and_ends_with_it() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let render = || Some("x 1\n".to_string());
        serve_during(&listener, &render, || {
            let silent = TcpStream::connect(address).unwrap();
            drop(silent);
            ask(address, &[b'x'; 20_000]);
            let text = ask(address, b"GET /metrics HTTP/1.0\r\n\r\n");
            assert!(text.starts_with("HTTP/1.0 200 OK\r\n") && text.ends_with("\r\n\r\nx 1\n"));
        });
        serve_during(&listener, &|| None, || {
            let text = ask(address, b"GET /metrics HTTP/1.0\r\n\r\n");
            assert!(text.starts_with("HTTP/1.0 503"), "{text}");
        });
    }

    #[test]
    fn clients_that_say_nothing_delay_no_other_client() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let stopping = AtomicBool::new(false);
        let render = || Some("x 1\n".to_string());
        // No client runs out of time here.
        let hour = Duration::from_secs(3600);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, &stopping, &render, hour));
            let silent: Vec<TcpStream> =
                (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
            let mut client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("\r\n\r\nx 1\n"), "{answer}");
            let is_open = |mut stream: &TcpStream| {
                stream.set_nonblocking(true).unwrap();
                stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            };
            let open_count = silent.iter().filter(|stream| is_open(stream)).count();
            assert_eq!(open_count, CLIENT_COUNT_MAX - 1);
            assert!(is_open(&silent[199]), "the oldest are cut off");
            stopping.store(true, Ordering::SeqCst);
            TcpStream::connect(address).unwrap();
        });
    }

    #[test]
    fn addresses_of_others_and_ports_in_use_are_refused() {
        for address in ["0.0.0.0:0", "192.0.2.1:9000", "[::]:0"] {
            let error = listen(address.parse().unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        let first = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = listen(first.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }
}
