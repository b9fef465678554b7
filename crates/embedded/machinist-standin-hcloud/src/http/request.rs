//! One request: token, rate limit, fault, handler, headers and log.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

use super::control;
use super::response::{Between, Broken, ReplyBody, empty, halve, html, json};
use crate::api::{Call, Failure, Query, Reply, handle};
use crate::books::Books;
use crate::error::{ApiError, status_of};
use crate::limit::Buckets;
use crate::settings::{Access, ReadOnlyCode};
use crate::{Fault, Rate, RequestRecord, Standin};

/// User data has at most 32 KiB; a load balancer with all its targets is far smaller.
const MAX_REQUEST_BYTES: usize = 1024 * 1024;

pub(super) async fn answer<B>(standin: &Standin, request: Request<B>) -> Result<Response<ReplyBody>, Broken>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    if parts.headers.contains_key(header::ORIGIN) {
        // Loopback keeps other machines out, but not web pages in a browser on this machine.
        return Ok(json(StatusCode::FORBIDDEN, &ApiError::new("forbidden", "no browsers").body()));
    }
    let Ok(body) =
        Limited::new(body, MAX_REQUEST_BYTES).collect().await.map(|collected| collected.to_bytes())
    else {
        let error = ApiError::new("json_error", "the body is too long, or broke off");
        return Ok(json(error.status, &error.body()));
    };
    if parts.uri.path().starts_with("/_control") {
        return Ok(control::respond(standin, &parts.method, parts.uri.path(), parts.uri.query(), &body));
    }
    // On its own task: the request continues when its client stops waiting.
    let task = tokio::spawn(serve(standin.clone(), parts, body));
    task.await.unwrap_or(Err(Broken))
}

/// A request that was admitted or refused, before its effect.
struct Arrived {
    number: u64,
    at: Timestamp,
    template: String,
    project: Option<String>,
    refusal: Option<ApiError>,
    fault: Option<Fault>,
    rate: Rate,
}

async fn serve(standin: Standin, parts: Parts, body: Bytes) -> Result<Response<ReplyBody>, Broken> {
    let arrived = standin.turn(|books, now| arrive(books, &parts, now));
    if let Some(Fault::Delay { by }) = arrived.fault {
        tokio::time::sleep(by).await;
    }
    let prevented = arrived.fault.as_ref().and_then(before_effect);
    let (response, code) = match (&arrived.refusal, prevented) {
        (Some(refusal), _) => error(refusal),
        (None, Some(Prevented::Reply(response, code))) => (response, code),
        (None, Some(Prevented::Break(span))) => {
            tokio::time::sleep(span).await;
            record(&standin, &parts, &arrived, None, None);
            return Err(Broken);
        }
        (None, None) => perform(&standin, &parts, &body, &arrived),
    };
    let response = match &arrived.fault {
        Some(Fault::EffectThenReset) => None,
        Some(Fault::EffectThenHang { span }) => {
            tokio::time::sleep(*span).await;
            None
        }
        Some(Fault::EffectThenError { code }) => {
            Some(error(&ApiError::new(code, "injected after the effect")))
        }
        Some(Fault::Truncate) => Some((halve(response, Between::Break).await, code)),
        Some(Fault::SlowBody { span }) => Some((halve(response, Between::Wait(*span)).await, code)),
        _ => Some((response, code)),
    };
    let Some((mut response, code)) = response else {
        record(&standin, &parts, &arrived, None, None);
        return Err(Broken);
    };
    let correlation_id = record(&standin, &parts, &arrived, Some(response.status()), code);
    add_headers(&mut response, &correlation_id, arrived.rate, standin.now());
    Ok(response)
}

/// Identifies the project, takes a request from its bucket, and chooses the fault.
fn arrive(books: &mut Books, parts: &Parts, now: Timestamp) -> Arrived {
    let template = template_of(parts.uri.path());
    let number = books.log.begin(parts.method.as_str(), &template);
    let limit = books.settings.requests_per_hour.get();
    let token = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer "));
    let grant = token.and_then(|token| books.settings.tokens.grant(token)).cloned();
    let (rate, is_admitted) = match &grant {
        Some(grant) => books.buckets.take(&grant.project, limit, now),
        None => (Buckets::full(limit, now), true),
    };
    let refusal = match &grant {
        None => Some(ApiError::new("unauthorized", "unable to authenticate")),
        Some(_) if !is_admitted => Some(ApiError::new(
            "rate_limit_exceeded",
            format!("limit of {} requests per hour reached", rate.limit),
        )),
        Some(grant) if grant.access == Access::ReadOnly && parts.method != Method::GET => {
            let code = match books.settings.read_only_code {
                ReadOnlyCode::TokenReadonly => "token_readonly",
                ReadOnlyCode::Forbidden => "forbidden",
            };
            Some(ApiError::new(code, "token is only allowed to perform GET requests"))
        }
        Some(_) => None,
    };
    let draws = (books.draw(), &mut books.faults);
    let fault = match refusal {
        Some(_) => None,
        None => draws.1.take(parts.method.as_str(), &template, || draws.0),
    };
    let project = grant.map(|grant| grant.project);
    Arrived { number, at: now, template, project, refusal, fault, rate }
}

/// A fault that takes the place of the effect.
enum Prevented {
    Reply(Response<ReplyBody>, Option<String>),
    Break(std::time::Duration),
}

fn before_effect(fault: &Fault) -> Option<Prevented> {
    match fault {
        Fault::Error { code, status } => {
            let status = status.and_then(|status| StatusCode::from_u16(status).ok());
            let status = status.unwrap_or_else(|| status_of(code));
            let refusal = ApiError { status, ..ApiError::new(code, "injected before any effect") };
            let (response, code) = error(&refusal);
            Some(Prevented::Reply(response, code))
        }
        Fault::Bare { status } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
            Some(Prevented::Reply(empty(status), None))
        }
        Fault::Html404 => Some(Prevented::Reply(html(StatusCode::NOT_FOUND), None)),
        Fault::Reset => Some(Prevented::Break(std::time::Duration::ZERO)),
        Fault::Hang { span } => Some(Prevented::Break(*span)),
        Fault::Delay { .. }
        | Fault::EffectThenError { .. }
        | Fault::EffectThenReset
        | Fault::EffectThenHang { .. }
        | Fault::Truncate
        | Fault::SlowBody { .. }
        | Fault::EmptyList
        | Fault::StaleList { .. }
        | Fault::Omit { .. }
        | Fault::OmitAtPageBoundary => None,
    }
}

fn perform(
    standin: &Standin,
    parts: &Parts,
    body: &[u8],
    arrived: &Arrived,
) -> (Response<ReplyBody>, Option<String>) {
    let path = parts.uri.path();
    let Some(rest) = path.strip_prefix("/v1/") else { return (html(StatusCode::NOT_FOUND), None) };
    let segments: Vec<&str> = rest.split('/').collect();
    let project = arrived.project.as_deref().unwrap_or_default();
    let (handled, written) = standin.try_turn(|books, now| {
        let mut call = Call {
            books,
            cloud: standin.machines(),
            now,
            project,
            path,
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            body,
            fault: arrived.fault.as_ref(),
        };
        handle(&mut call, &parts.method, &segments)
    });
    if let Err(trouble) = written {
        return error(&ApiError::new("service_error", format!("cannot write the journal: {trouble}")));
    }
    match handled {
        Ok(Reply { status, body, link }) => {
            let mut response = body.map_or_else(|| empty(status), |body| json(status, &body));
            if let Some(link) = link.and_then(|link| HeaderValue::try_from(link).ok()) {
                response.headers_mut().insert(header::LINK, link);
            }
            (response, None)
        }
        Err(Failure::Api(refusal)) => error(&refusal),
        Err(Failure::NoSuchPath) => (html(StatusCode::NOT_FOUND), None),
    }
}

fn error(error: &ApiError) -> (Response<ReplyBody>, Option<String>) {
    (json(error.status, &error.body()), Some(error.code.clone()))
}

/// Records a request, and returns the correlation id of its reply.
fn record(
    standin: &Standin,
    parts: &Parts,
    arrived: &Arrived,
    status: Option<StatusCode>,
    code: Option<String>,
) -> String {
    let correlation_id = format!("{:016x}", arrived.number);
    let user_agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    standin.lock().log.end(RequestRecord {
        number: arrived.number,
        at: arrived.at,
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        template: arrived.template.clone(),
        project: arrived.project.clone(),
        status: status.map(|status| status.as_u16()),
        code,
        user_agent: user_agent.unwrap_or_default().to_owned(),
        correlation_id: correlation_id.clone(),
    });
    correlation_id
}

fn add_headers(response: &mut Response<ReplyBody>, correlation_id: &str, rate: Rate, now: Timestamp) {
    let headers = response.headers_mut();
    headers.insert("ratelimit-limit", rate.limit.into());
    headers.insert("ratelimit-remaining", rate.remaining.into());
    headers.insert("ratelimit-reset", rate.reset.into());
    if let Ok(value) = HeaderValue::from_str(correlation_id) {
        headers.insert("x-correlation-id", value);
    }
    // The stand-in's own time, because clients compare their clock with it.
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&now)
        && let Ok(date) = HeaderValue::from_str(&date)
    {
        headers.insert(header::DATE, date);
    }
}

/// The path with `{id}` in place of numbers.
fn template_of(path: &str) -> String {
    let is_number = |segment: &str| !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
    let parts = path.split('/').map(|segment| if is_number(segment) { "{id}" } else { segment });
    parts.collect::<Vec<_>>().join("/")
}
