//! The HTTP side of the fake: reads forms, plays faults, writes XML.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, DATE, RETRY_AFTER};
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use tokio::io::DuplexStream;

use super::{Fake, FaultKind, Parameters, Request, xml};

/// Longer than the driver waits for an answer.
const FOR_EVER: Duration = Duration::from_secs(600);

/// Serves one connection until it ends.
pub(crate) async fn serve(fake: Fake, connection: DuplexStream) {
    let service = service_fn(move |request| answer(fake.clone(), request));
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .serve_connection(TokioIo::new(connection), service);
    // The client may close the connection at any time.
    let _ = http.await;
}

async fn answer(fake: Fake, request: http::Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let request = parse(&head.headers, &body);
    let fault = {
        let mut state = fake.lock();
        state.requests.push(request.clone());
        let place = state.faults.iter().position(|fault| fault.action == request.action);
        place.map(|place| state.faults.remove(place).kind)
    };
    let Ok(response) = play(&fake, &request, fault).await?;
    Ok(response)
}

async fn play(
    fake: &Fake,
    request: &Request,
    fault: Option<FaultKind>,
) -> io::Result<Result<Response<Full<Bytes>>, Infallible>> {
    let respond = |status: u16, body: String| {
        let date = fake.now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        Response::builder().status(status).header(DATE, date).body(Full::from(body)).expect("a response")
    };
    let act = || {
        let done = fake.lock().act(request);
        done.map_or_else(|(status, code)| (status, xml::refusal(code)), |body| (200, body))
    };
    let response = match fault {
        None => {
            let (status, body) = act();
            respond(status, body)
        }
        Some(FaultKind::Refuse { status, code, retry_after }) => {
            let mut response = respond(status, xml::refusal(code));
            if let Some(seconds) = retry_after {
                response.headers_mut().insert(RETRY_AFTER, seconds.into());
            }
            response
        }
        Some(FaultKind::EffectThenStatus(status)) => {
            act();
            respond(status, xml::refusal("InternalError"))
        }
        Some(FaultKind::EffectThenSilence) => {
            act();
            tokio::time::sleep(FOR_EVER).await;
            return Err(io::ErrorKind::TimedOut.into());
        }
        Some(FaultKind::LateEffect(after)) => {
            let (fake, request) = (fake.clone(), request.clone());
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                let _ = fake.lock().act(&request);
            });
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Some(FaultKind::Garbage(body)) => respond(200, body.to_owned()),
    };
    Ok(Ok(response))
}

/// Reads a form, and the scope of its signature.
fn parse(headers: &HeaderMap, body: &[u8]) -> Request {
    let text = std::str::from_utf8(body).expect("a form is text");
    let decode = |text: &str| percent_decode_str(text).decode_utf8().expect("UTF-8").into_owned();
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    let mut parameters: Parameters = pairs.map(|(name, value)| (decode(name), decode(value))).collect();
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // AWS4-HMAC-SHA256 Credential=KEY/DAY/REGION/SERVICE/aws4_request, …
    let scope = authorization.split_once("Credential=").map(|(_, rest)| rest).unwrap_or_default();
    let mut scope = scope.split('/');
    Request {
        action: parameters.remove("Action").unwrap_or_default(),
        access_key: scope.next().unwrap_or_default().to_owned(),
        region: scope.nth(1).unwrap_or_default().to_owned(),
        parameters,
    }
}
