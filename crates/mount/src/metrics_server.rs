//! A small HTTP server for `GET /metrics`: one thread, one request at a time, HTTP/1.0.
//!
//! A client has two seconds and 8 KiB for its request. What it asks for is never anything but the
//! metrics, so there is nothing to configure.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For a request and its answer.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Of a request.
const REQUEST_LIMIT_BYTES: usize = 8 << 10;
/// How long the port of a daemon that is just ending is waited for.
const PORT_WAIT: Duration = Duration::from_secs(1);

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
pub(crate) fn serve_during<T>(
    listener: &TcpListener,
    render: &(dyn Fn() -> Option<String> + Sync),
    work: impl FnOnce() -> T,
) -> T {
    let stopping = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let body = || serve(listener, &stopping, render);
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
) {
    loop {
        let accepted = listener.accept();
        if stopping.load(Ordering::SeqCst) {
            return;
        }
        let result = match accepted {
            Ok((client, _)) => answer(&client, render),
            Err(error) => {
                // Too many open files, perhaps: not the same at once again.
                std::thread::sleep(Duration::from_millis(100));
                Err(error)
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a client of the metrics");
        }
    }
}

fn answer(
    mut client: &TcpStream,
    render: &(dyn Fn() -> Option<String> + Sync),
) -> std::io::Result<()> {
    let request = read_request(client)?;
    let (status, body) = match judge(&request) {
        Ok(()) => match render() {
            Some(body) => ("200 OK", body),
            None => ("503 Service Unavailable", "the volume is closed\n".into()),
        },
        Err(status) => (status, format!("{status}; GET /metrics is all there is\n")),
    };
    let len_bytes = body.len();
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {len_bytes}\r\nConnection: close\r\n\r\n"
    );
    client.set_write_timeout(Some(TIME_LIMIT))?;
    client.write_all((head + &body).as_bytes())
}

/// Reads up to the empty line, the limit, or the end.
fn read_request(mut client: &TcpStream) -> std::io::Result<Vec<u8>> {
    let give_up = Instant::now() + TIME_LIMIT;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_LIMIT_BYTES {
        let left = give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => request.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(request)
}

/// The status of a request that is not answered with the metrics.
fn judge(request: &[u8]) -> Result<(), &'static str> {
    const BAD: &str = "400 Bad Request";
    if !request.windows(4).any(|end| end == b"\r\n\r\n") {
        return Err(BAD);
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [method, path, version] = words[..] else { return Err(BAD) };
    if !version.starts_with(b"HTTP/1.") {
        return Err(BAD);
    }
    match (method, path.split(|byte| *byte == b'?').next()) {
        (b"GET", Some(b"/metrics")) => Ok(()),
        (b"GET", _) => Err("404 Not Found"),
        _ => Err("405 Method Not Allowed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_served() {
        let status = |text: &str| judge(text.as_bytes());
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Ok(()));
        assert_eq!(status("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), Ok(()));
        assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), Err("404 Not Found"));
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), Err("405 Method Not Allowed"));
        for bad in ["", "\r\n\r\n", "GET /metrics\r\n\r\n", "GET /metrics HTTP/1.1\r\n", "\0 \0 \0"]
        {
            assert_eq!(status(bad), Err("400 Bad Request"), "{bad:?}");
        }
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
