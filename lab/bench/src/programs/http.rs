//! The part of HTTP that is needed to put keys into etcd and to read its metrics.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A connection for many requests.
pub struct Connection {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Connection {
    /// Connects.
    pub fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIME_LIMIT))?;
        Ok(Connection { stream: BufReader::new(stream), address })
    }

    /// The body of the answer to a GET.
    pub fn get(&mut self, path: &str) -> Result<String> {
        self.ask("GET", path, "")
    }

    /// The body of the answer to a POST of JSON.
    pub fn post(&mut self, path: &str, body: &str) -> Result<String> {
        self.ask("POST", path, body)
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<String> {
        let (address, len_bytes) = (self.address, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Content-Length: {len_bytes}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?;
        let answer = self.body()?;
        match status.split(' ').nth(1) {
            Some("200") => Ok(answer),
            _ => Err(Error::other(format!("{method} {path}: {status}: {answer}"))),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Headers and what they announce.
    fn body(&mut self) -> Result<String> {
        let mut len_bytes = None;
        let mut is_chunked = false;
        loop {
            let header = self.line()?.to_ascii_lowercase();
            match header.split_once(':') {
                None if header.is_empty() => break,
                Some(("content-length", value)) => len_bytes = Some(number(value.trim(), 10)?),
                Some(("transfer-encoding", value)) => is_chunked = value.trim() == "chunked",
                _ => {}
            }
        }
        let mut bytes = Vec::new();
        match len_bytes {
            _ if is_chunked => loop {
                let size = number(&self.line()?, 16)?;
                self.read_into(&mut bytes, size)?;
                self.line()?;
                if size == 0 {
                    break;
                }
            },
            Some(size) => self.read_into(&mut bytes, size)?,
            None => return Err(Error::other("an answer of unknown length")),
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn read_into(&mut self, bytes: &mut Vec<u8>, size: u64) -> Result<()> {
        match (&mut self.stream).take(size).read_to_end(bytes)? as u64 {
            read if read == size => Ok(()),
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn number(text: &str, radix: u32) -> Result<u64> {
    u64::from_str_radix(text, radix).map_err(|_| Error::other(format!("{text}: not a length")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Two answers as they are parsed from a server that sends these bytes.
    fn ask(answer: &'static str) -> (Result<String>, Result<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        drop(listener);
        let first = connection.get("/a");
        stream.write_all(answer.as_bytes()).unwrap();
        (first, connection.post("/b", "{}"))
    }

    #[test]
    fn bodies() {
        let (first, second) = ask("HTTP/1.1 200 OK\r\nA: b\r\ncontent-length: 3\r\n\r\nabc");
        assert_eq!((first.unwrap(), second.unwrap()), ("abc".to_owned(), "abc".to_owned()));
        let (first, second) = ask(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nA\r\n0123456789\r\n\
             0\r\n\r\n",
        );
        assert_eq!(first.unwrap(), "ab0123456789");
        assert_eq!(second.unwrap(), "ab0123456789");
    }

    #[test]
    fn failures() {
        let (first, _) = ask("HTTP/1.1 503 No\r\nContent-Length: 3\r\n\r\nwhy");
        assert!(first.unwrap_err().to_string().contains("why"));
        assert!(ask("HTTP/1.1 200 OK\r\n\r\n").0.is_err());
    }
}
