//! The way of a request through the proxy, and of its answer back.

use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, RETRY_AFTER, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::pattern::Request;
use super::rule::{Fault, Rule};
use super::{State, unfit};
use crate::error::Result;

type Answer = Response<Full<Bytes>>;
type Problem = Box<dyn std::error::Error + Send + Sync>;

/// The service behind the proxy.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    address: Arc<str>,
}

impl Upstream {
    /// The service that a URL names, and the URL's path.
    pub(super) fn of_url(url: &str) -> Result<(Upstream, String)> {
        let uri: Uri = url.parse().map_err(|_| unfit(url))?;
        let has_port = uri.port_u16().is_some();
        match (uri.scheme_str(), uri.authority(), uri.query()) {
            (Some("http"), Some(authority), None) if has_port => {
                let path = if uri.path() == "/" { "" } else { uri.path() };
                Ok((Upstream { address: authority.as_str().into() }, path.to_owned()))
            }
            _ => Err(unfit(url)),
        }
    }

    /// Performs a request on a connection of its own, so that no connection that has died meanwhile is in the way.
    async fn perform(&self, parts: Parts, body: Bytes) -> Result<Answer, Problem> {
        let stream = TcpStream::connect(&*self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = hyper::Request::from_parts(parts, Full::new(body));
        keep_end_to_end(request.headers_mut());
        let (mut parts, body) = sender.send_request(request).await?.into_parts();
        keep_end_to_end(&mut parts.headers);
        Ok(Response::from_parts(parts, Full::new(body.collect().await?.to_bytes())))
    }
}

/// Removes what speaks of one connection only. Bodies are passed on whole, so that their framing is ours.
fn keep_end_to_end(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

/// Accepts connections for ever.
pub(super) async fn serve(listener: TcpListener, upstream: Upstream, state: Arc<State>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        // What goes wrong with one connection does not concern the others.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let (upstream, state) = (upstream.clone(), Arc::clone(&state));
        let service = service_fn(move |request| answer(request, upstream.clone(), Arc::clone(&state)));
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

/// The client gets no answer: its connection is closed.
#[derive(Debug)]
struct NoAnswer;

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no answer")
    }
}

impl std::error::Error for NoAnswer {}

/// Sends a request its way in a task of its own, which goes on when the client does not wait any more.
async fn answer(
    request: hyper::Request<Incoming>,
    upstream: Upstream,
    state: Arc<State>,
) -> Result<Answer, NoAnswer> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| NoAnswer)?.to_bytes();
    let (number, rule) = state.arrive(Request::of(&parts));
    let exchange = Exchange { upstream, rule, number, state: Arc::clone(&state) };
    let answer = tokio::spawn(exchange.run(parts, body)).await.map_err(|_| NoAnswer)??;
    state.note(number, |seen| seen.answered = Some(answer.status().as_u16()));
    Ok(answer)
}

/// One request on its way.
struct Exchange {
    upstream: Upstream,
    rule: Option<Arc<Rule>>,
    number: usize,
    state: Arc<State>,
}

impl Exchange {
    async fn run(self, parts: Parts, body: Bytes) -> Result<Answer, NoAnswer> {
        if let Some(rule) = &self.rule
            && let Some(instead) = before(rule).await
        {
            return instead;
        }
        // A service that is gone answers nothing, and neither does the proxy.
        let answer = self.upstream.perform(parts, body).await.map_err(|_| NoAnswer)?;
        self.state.note(self.number, |seen| seen.performed = Some(answer.status().as_u16()));
        match &self.rule {
            Some(rule) => after(rule, answer).await,
            None => Ok(answer),
        }
    }
}

/// What befalls a request before it is performed: what comes instead, or nothing.
async fn before(rule: &Rule) -> Option<Result<Answer, NoAnswer>> {
    match &rule.fault {
        Fault::Refuse { status, code, retry_after } => {
            rule.strike();
            Some(Ok(refusal(*status, code, *retry_after)))
        }
        Fault::DropRequest => {
            rule.strike();
            Some(Err(NoAnswer))
        }
        Fault::DelayRequest(delay) => {
            rule.strike();
            tokio::time::sleep(*delay).await;
            None
        }
        Fault::HoldRequest => {
            rule.strike();
            rule.released().await;
            None
        }
        Fault::Pass | Fault::DropAnswer | Fault::DelayAnswer(_) | Fault::HoldAnswer => None,
    }
}

/// What befalls the answer.
async fn after(rule: &Rule, answer: Answer) -> Result<Answer, NoAnswer> {
    match &rule.fault {
        Fault::DropAnswer => {
            rule.strike();
            return Err(NoAnswer);
        }
        Fault::DelayAnswer(delay) => {
            rule.strike();
            tokio::time::sleep(*delay).await;
        }
        Fault::HoldAnswer => {
            rule.strike();
            rule.released().await;
        }
        Fault::Pass => rule.strike(),
        Fault::Refuse { .. } | Fault::DropRequest | Fault::DelayRequest(_) | Fault::HoldRequest => {}
    }
    Ok(answer)
}

/// An error as Azure Storage tells it.
fn refusal(status: u16, code: &str, retry_after: Option<Duration>) -> Answer {
    let body = format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code>\
         <Message>Refused by the proxy in front of the service.</Message></Error>"
    );
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/xml"));
    if let Ok(code) = code.parse() {
        headers.insert("x-ms-error-code", code);
    }
    if let Some(pause) = retry_after {
        let seconds = pause.as_secs() + u64::from(pause.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, seconds.into());
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_by_a_url_with_host_and_port() {
        let (upstream, path) = Upstream::of_url("http://127.0.0.1:10000/devstoreaccount1").unwrap();
        assert_eq!((&*upstream.address, path.as_str()), ("127.0.0.1:10000", "/devstoreaccount1"));
        assert_eq!(Upstream::of_url("http://localhost:80").unwrap().1, "");
        for wrong in ["https://127.0.0.1:1/x", "http://127.0.0.1/x", "127.0.0.1:1", "http://a:1/?sig=x", ""] {
            let error = Upstream::of_url(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("http://HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn a_refusal_says_when_to_come_back_in_whole_seconds() {
        let answer = refusal(503, "ServerBusy", Some(Duration::from_millis(1_200)));
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()["retry-after"], "2");
        assert_eq!(answer.headers()["x-ms-error-code"], "ServerBusy");
        assert!(!refusal(409, "ContainerBeingDeleted", None).headers().contains_key("retry-after"));
    }
}
