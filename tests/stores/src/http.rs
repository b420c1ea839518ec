//! The few HTTP requests that find out whether a server is ready, and lay it out.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a request may take.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// Sends one request on a connection of its own, and returns the answer, or what is missing.
///
/// # Errors
///
/// When no answer is received within five seconds, or its status is not one of success.
pub async fn request(
    method: &str,
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<String, String> {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(body);
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = match tokio::time::timeout(REQUEST_TIME, exchange).await {
        Ok(Ok(answer)) => String::from_utf8_lossy(&answer).into_owned(),
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer to {path} within {REQUEST_TIME:?}")),
    };
    let status = answer.split(' ').nth(1).unwrap_or_default();
    if status.starts_with('2') {
        Ok(answer)
    } else {
        Err(format!("{method} {path} was answered with {answer:?}"))
    }
}

/// Requests a path.
///
/// # Errors
///
/// As [`request`].
pub async fn get(address: SocketAddr, path: &str) -> Result<String, String> {
    request("GET", address, path, &[], "").await
}
