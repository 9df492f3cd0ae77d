//! What is asked, and which of it a rule speaks of.

use std::fmt;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap};

/// What a client asks for, without its credentials.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// `GET`, `PUT`, …
    pub method: String,
    /// The path, as it was sent.
    pub path: String,
    /// What follows the question mark, as it was sent; empty where there is none.
    pub query: String,
    headers: HeaderMap,
}

impl Request {
    pub(super) fn of(parts: &hyper::http::request::Parts) -> Request {
        let mut headers = parts.headers.clone();
        headers.remove(AUTHORIZATION);
        Request {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers,
        }
    }

    /// A parameter of the query, as it was sent: `comp` is `lease` for `PUT /c/blob?comp=lease`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// A header's value, whatever the case of its name; none for one that is no text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

type Condition = Arc<dyn Fn(&Request) -> bool + Send + Sync>;

/// Which requests are meant: those that fulfil all its conditions.
///
/// ```
/// use bus_emulators::Pattern;
///
/// let renewals = Pattern::any().method("PUT").parameter("comp", "lease").header("x-ms-lease-action", "renew");
/// ```
#[derive(Clone)]
pub struct Pattern {
    conditions: Vec<(String, Condition)>,
}

impl Pattern {
    /// All requests.
    pub fn any() -> Pattern {
        Pattern { conditions: Vec::new() }
    }

    /// Of them, those with this method.
    #[must_use]
    pub fn method(self, method: &str) -> Pattern {
        let wanted = method.to_owned();
        self.and(format!("method {method}"), move |request| request.method == wanted)
    }

    /// Of them, those whose path contains this.
    #[must_use]
    pub fn path(self, part: &str) -> Pattern {
        let wanted = part.to_owned();
        self.and(format!("path with {part}"), move |request| request.path.contains(&wanted))
    }

    /// Of them, those whose query has this parameter with this value.
    #[must_use]
    pub fn parameter(self, name: &str, value: &str) -> Pattern {
        let (text, name, value) = (format!("{name}={value}"), name.to_owned(), value.to_owned());
        self.and(text, move |request| request.parameter(&name) == Some(&value))
    }

    /// Of them, those that have this header with this value.
    #[must_use]
    pub fn header(self, name: &str, value: &str) -> Pattern {
        let (text, name, value) = (format!("{name}: {value}"), name.to_owned(), value.to_owned());
        self.and(text, move |request| request.header(&name) == Some(&value))
    }

    /// Of them, those for which `condition` holds; `text` says in a word what that is.
    #[must_use]
    pub fn and(
        mut self,
        text: impl Into<String>,
        condition: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> Pattern {
        self.conditions.push((text.into(), Arc::new(condition)));
        self
    }

    /// Whether it means this request.
    pub fn matches(&self, request: &Request) -> bool {
        self.conditions.iter().all(|(_, condition)| condition(request))
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.conditions.iter().map(|(text, _)| text)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request {
        let mut builder = hyper::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        Request::of(&builder.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn a_pattern_means_what_fulfils_all_its_conditions() {
        let renewal = request("PUT", "/a/locks/x?comp=lease", &[("x-ms-lease-action", "renew")]);
        let pattern = Pattern::any().method("PUT").path("/locks/").parameter("comp", "lease");
        assert!(pattern.matches(&renewal));
        assert!(pattern.clone().header("X-Ms-Lease-Action", "renew").matches(&renewal));
        assert!(!pattern.clone().header("x-ms-lease-action", "acquire").matches(&renewal));
        assert!(!pattern.clone().method("GET").matches(&renewal));
        assert!(!pattern.clone().path("/other/").matches(&renewal));
        assert!(!pattern.clone().parameter("comp", "metadata").matches(&renewal));
        assert!(!pattern.clone().and("never", |_| false).matches(&renewal));
        assert!(Pattern::any().matches(&renewal));
        assert_eq!(format!("{pattern:?}"), r#"["method PUT", "path with /locks/", "comp=lease"]"#);
    }

    #[test]
    fn a_parameter_is_found_whole() {
        let listing = request("GET", "/a/c?restype=container&comp=list&marker", &[]);
        assert_eq!(listing.parameter("comp"), Some("list"));
        assert_eq!(listing.parameter("marker"), Some(""));
        assert_eq!(listing.parameter("type"), None);
        assert_eq!(request("GET", "/a/c", &[]).parameter(""), Some(""), "an empty query is one empty pair");
    }

    #[test]
    fn credentials_are_not_remembered() {
        let signed = request("GET", "/a/c", &[("Authorization", "SharedKey account:c2VjcmV0"), ("x", "y")]);
        assert_eq!((signed.header("authorization"), signed.header("x")), (None, Some("y")));
        assert!(!format!("{signed:?}").contains("c2VjcmV0"));
    }
}
