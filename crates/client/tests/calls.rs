//! The calls, against answers that are written down here.

use std::time::Duration;
use thalweg_client::{Client, ClientError, Producer, Progress, ReadFrom, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const NEXT: &str = "Stream-Next-Offset: 0000000000000042_0000000000000000\r\n";

/// A server that gives one answer after the other on its first connection; what it was asked, and the
/// connection, which stays open.
async fn server(answers: Vec<String>) -> (Client, JoinHandle<(Vec<String>, TcpStream)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        for answer in answers {
            let mut request = vec![0; 4096];
            let count = socket.read(&mut request).await.unwrap();
            asked.push(String::from_utf8_lossy(&request[..count]).into_owned());
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
        (asked, socket)
    });
    let limit = Duration::from_millis(500);
    let timeouts = Timeouts { connect: limit, call: limit, silence: limit };
    (Client::new(address, timeouts), asked)
}

#[tokio::test]
async fn calls_share_a_connection_and_say_what_they_must() {
    let appended = format!("HTTP/1.1 204 No Content\r\n{NEXT}\r\n");
    let page = format!(
        "HTTP/1.1 200 OK\r\n{NEXT}Stream-Up-To-Date: true\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n"
    );
    let (client, asked) = server(vec![appended, page]).await;
    let producer = Producer { id: "p".into(), epoch: 1, seq: 2 };
    let tail = client.append("a b", "text/plain", Some(&producer), b"xyz").await.unwrap();
    let page = client.long_poll("a b", ReadFrom::At(tail), Some(9)).await.unwrap();
    assert_eq!((tail.get(), page.data.as_slice(), page.up_to_date), (42, &b"abc"[..], true));

    let (asked, _) = asked.await.unwrap();
    assert!(asked[0].starts_with("POST /v1/stream/a%20b HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(asked[0].contains("Producer-Seq: 2\r\n") && asked[0].ends_with("\r\n\r\nxyz"));
    let wanted = "?offset=0000000000000042_0000000000000000&live=long-poll&cursor=9 ";
    assert!(asked[1].contains(wanted), "{}", asked[1]);
}

#[tokio::test]
async fn a_refusal_says_why_and_when_to_come_again() {
    let refused = "HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nfull".to_owned();
    let (client, _asked) = server(vec![refused]).await;
    let error = client.create("s", "text/plain").await.unwrap_err();
    let ClientError::Refused { status, explanation, retry_after_seconds } = error else {
        panic!("not refused: {error}")
    };
    assert_eq!((status, &*explanation, retry_after_seconds), (503, "full", Some(3)));
}

#[tokio::test]
async fn silence_ends_a_call() {
    let (client, _asked) = server(vec![String::new()]).await;
    let error = client.head("s").await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { limit_ms: 500 }), "{error}");
}

#[tokio::test]
async fn a_stream_is_followed_to_its_end() {
    let events = "event: data\ndata:one\n\nevent: control\n\
        data:{\"streamNextOffset\":\"0000000000000003_0000000000000000\",\"streamClosed\":true}\n\n";
    let answer = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{events}\r\n0\r\n\r\n",
        events.len()
    );
    let (client, _asked) = server(vec![answer]).await;
    let mut follow = client.follow("s", ReadFrom::Begin).await.unwrap();
    let data = follow.next().await.unwrap();
    assert_eq!(data, Some(Progress::Data(b"one".to_vec())));
    let control = follow.next().await.unwrap();
    assert!(
        matches!(control, Some(Progress::Control { next, closed: true, .. }) if next.get() == 3)
    );
    assert_eq!(follow.next().await.unwrap(), None);
}
