//! What a message carries of its sender's trace, in W3C's three headers.
//!
//! Sources of the formats: W3C Recommendation "Trace Context", level 1, sections 3.2 and 3.3; W3C Candidate Recommendation
//! "Propagation format for distributed context: Baggage", section 3. Whatever is not of these formats is as if it were not
//! there: tracing never makes a message fail.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::Headers;

/// A message older than this does not continue the trace of its sender: its run begins one of its own, which is linked to
/// the sender's. A trace is gathered, sampled and shown as a whole, and whoever does that has closed it by then.
pub const CONTINUED_FOR: Duration = Duration::from_secs(3600);

/// A parsed `traceparent` header: which trace, and which span of it is the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    flags: u8,
}

impl TraceParent {
    /// A new trace, sampled.
    pub fn root() -> Self {
        TraceParent { trace: Uuid::new_v4().as_u128(), span: fresh_span(), flags: 1 }
    }

    /// The span of this id in the trace of that id; `None` if one of them is zero, which means invalid.
    pub const fn of(trace_id: u128, span_id: u64, flags: u8) -> Option<Self> {
        match (trace_id, span_id) {
            (0, _) | (_, 0) => None,
            (trace, span) => Some(TraceParent { trace, span, flags }),
        }
    }

    /// The same trace, with a new span as the parent of what follows.
    #[must_use]
    pub fn child(self) -> Self {
        TraceParent { span: fresh_span(), ..self }
    }

    /// Reads a header; `None` if it is not one of this format or is all zeros, which means invalid.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let lengths = version.len() == 2 && trace.len() == 32 && span.len() == 16 && flags.len() == 2;
        let lower_hex = header.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        // Version 00 has exactly four parts; a later one may have more.
        if !lengths || !lower_hex || version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let (trace, span) = (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
        TraceParent::of(trace, span, u8::from_str_radix(flags, 16).ok()?)
    }

    /// Which trace.
    pub const fn trace_id(self) -> u128 {
        self.trace
    }

    /// Which span of it.
    pub const fn span_id(self) -> u64 {
        self.span
    }

    /// The flags: the lowest bit says that the trace is sampled.
    pub const fn flags(self) -> u8 {
        self.flags
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

fn fresh_span() -> u64 {
    fastrand::u64(1..)
}

/// What travels with a message of whatever it was sent in: the parent, what tracing systems add to it, and baggage.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceContext {
    /// The span that what follows is a child of.
    pub parent: Option<TraceParent>,
    /// What tracing systems say beside it (`tracestate`). Without a parent it means nothing.
    pub state: Option<Arc<str>>,
    /// What programs pass on to all that follows (`baggage`).
    pub baggage: Option<Arc<str>>,
}

impl TraceContext {
    /// How much of a `tracestate` is passed on, in bytes: as many as everybody has to. What is longer loses whole members,
    /// from the end.
    pub const MOST_STATE: usize = 512;
    /// How much of a `baggage` is passed on, in bytes, likewise.
    pub const MOST_BAGGAGE: usize = 8192;

    /// What these headers say, as far as it is of the right format.
    pub fn of(headers: &Headers) -> Self {
        let parent = headers.get(Headers::TRACEPARENT).and_then(TraceParent::parse);
        let state = headers.get(Headers::TRACESTATE).filter(|_| parent.is_some());
        TraceContext {
            parent,
            state: state.and_then(trace_state),
            baggage: headers.get(Headers::BAGGAGE).and_then(baggage),
        }
    }

    /// Adds it to the headers of a message that is to be sent. Headers that its sender has set himself go before, if they
    /// are of the right format. Where all headers together would be more than a message may have
    /// ([`Headers::MAX_BYTES`]), the baggage is left out, and then the state.
    pub fn add_to(&self, headers: &mut Headers) {
        let own = TraceContext::of(headers);
        if own.parent.is_none() {
            put(headers, Headers::TRACEPARENT, self.parent.map(|parent| parent.to_string()));
            put(headers, Headers::TRACESTATE, self.state.as_deref().filter(|_| self.parent.is_some()));
        }
        if own.baggage.is_none() {
            put(headers, Headers::BAGGAGE, self.baggage.as_deref());
        }
        if own.baggage.is_none() && self.baggage.is_some() && headers.bytes() > Headers::MAX_BYTES {
            headers.remove(Headers::BAGGAGE);
        }
        if own.parent.is_none() && self.state.is_some() && headers.bytes() > Headers::MAX_BYTES {
            headers.remove(Headers::TRACESTATE);
        }
    }
}

fn put(headers: &mut Headers, name: &str, value: Option<impl Into<String>>) {
    match value {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    };
}

/// Shows the parent only: the rest is other people's, and may be secret.
impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceContext").field("parent", &self.parent).finish_non_exhaustive()
    }
}

/// A `tracestate` with at most 32 members; one that has a wrong member is wrong as a whole.
fn trace_state(header: &str) -> Option<Arc<str>> {
    let members: Vec<&str> = members(header).collect();
    members.iter().all(|member| is_state(member)).then(|| fitting(members, 32, TraceContext::MOST_STATE))?
}

/// A `baggage` with at most 64 members, without those that are wrong.
fn baggage(header: &str) -> Option<Arc<str>> {
    fitting(members(header).filter(|member| is_baggage(member)), 64, TraceContext::MOST_BAGGAGE)
}

fn members(header: &str) -> impl Iterator<Item = &str> {
    header.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty())
}

/// The first of these members, as many as may be and as there is room for; `None` if that is none.
fn fitting<'m>(members: impl IntoIterator<Item = &'m str>, most: usize, bytes: usize) -> Option<Arc<str>> {
    let mut kept = String::new();
    for member in members.into_iter().take(most) {
        if kept.len() + usize::from(!kept.is_empty()) + member.len() > bytes {
            break;
        }
        if !kept.is_empty() {
            kept.push(',');
        }
        kept.push_str(member);
    }
    (!kept.is_empty()).then(|| kept.into())
}

fn is_state(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let in_key = |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let in_value = |b| matches!(b, b' '..=b'~') && b != b'=';
    (1..=256).contains(&key.len())
        && key.bytes().all(in_key)
        && (1..=256).contains(&value.len())
        && value.bytes().all(in_value)
}

fn is_baggage(member: &str) -> bool {
    let Some((key, rest)) = member.split_once('=') else { return false };
    let in_key = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let in_rest = |b| matches!(b, b' '..=b'~' | b'\t') && !matches!(b, b'"' | b'\\');
    let key = key.trim_matches([' ', '\t']);
    !key.is_empty() && key.bytes().all(in_key) && rest.bytes().all(in_rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_child_stays_in_its_trace() {
        let parent = TraceParent::parse(PARENT).unwrap_or_else(|| panic!("{PARENT}"));
        assert_eq!(parent.to_string(), PARENT);
        let child = parent.child();
        assert_eq!(child.trace, parent.trace);
        assert_ne!(child.span, parent.span);
        assert_eq!(TraceParent::parse(&child.to_string()), Some(child));
    }

    #[test]
    fn what_is_no_trace_context_is_none() {
        for bad in [
            "",
            "00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }

    fn read(headers: &[(&str, &str)]) -> (bool, Option<String>, Option<String>) {
        let context = TraceContext::of(&headers.iter().copied().collect());
        let text = |text: Option<Arc<str>>| text.map(|text| text.to_string());
        (context.parent.is_some(), text(context.state), text(context.baggage))
    }

    #[test]
    fn state_is_read_with_its_parent_and_as_a_whole() {
        let with = |parent, state| read(&[("traceparent", parent), ("tracestate", state)]).1;
        assert_eq!(with(PARENT, "rojo=00f067, congo=t61\t,").as_deref(), Some("rojo=00f067,congo=t61"));
        assert_eq!(with("00-1", "rojo=1"), None, "it belongs to a parent");
        for bad in ["", ",", "rojo", "Rojo=1", "rojo=", "rojo=a=b", "rojo=1,congo", "rojo=å", "=1"] {
            assert_eq!(with(PARENT, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn baggage_is_read_without_a_parent_and_without_what_is_wrong_in_it() {
        let of = |header| read(&[("baggage", header)]).2;
        let good = "tenant=acme,user=a%20b;secret;ttl = 3";
        assert_eq!(of(good).as_deref(), Some(good));
        assert_eq!(of(" tenant = acme ,, broken, x=\"y\", ä=1, z= ").as_deref(), Some("tenant = acme,z="));
        assert_eq!(of("broken"), None);
    }

    #[test]
    fn what_is_too_long_loses_whole_members() {
        let many: Vec<String> = (0..70).map(|n| format!("k{n}=v")).collect();
        let kept =
            read(&[("traceparent", PARENT), ("tracestate", &many.join(",")), ("baggage", &many.join(","))]);
        assert_eq!(kept, (true, Some(many[..32].join(",")), Some(many[..64].join(","))));
        let long = format!("a=1,b={}", "x".repeat(TraceContext::MOST_BAGGAGE));
        assert_eq!(read(&[("baggage", &long)]).2.as_deref(), Some("a=1"));
        let exact = format!("b={}", "x".repeat(TraceContext::MOST_BAGGAGE - 2));
        assert_eq!(read(&[("baggage", &exact)]).2, Some(exact));
    }

    #[test]
    fn senders_own_headers_go_before() {
        let ours: Headers =
            [("traceparent", PARENT), ("tracestate", "rojo=1"), ("baggage", "a=1")].into_iter().collect();
        let ours = TraceContext::of(&ours);
        let other = PARENT.replace("0af7", "0bf7");
        let mut own: Headers = [("traceparent", other.as_str()), ("baggage", "b=2")].into_iter().collect();
        let before = own.clone();
        ours.add_to(&mut own);
        assert_eq!(own, before, "our state does not go with another parent");
        let mut broken: Headers =
            [("traceparent", "00-1"), ("tracestate", "congo=1"), ("baggage", "?")].into_iter().collect();
        ours.add_to(&mut broken);
        assert_eq!(TraceContext::of(&broken), ours);
    }

    /// What is added never makes a message too large that would not be otherwise, but for the parent.
    #[test]
    fn baggage_and_state_are_left_out_where_there_is_no_room() {
        let baggage = format!("a={}", "x".repeat(4000));
        let ours: Headers =
            [("traceparent", PARENT), ("tracestate", "rojo=1"), ("baggage", &baggage)].into_iter().collect();
        let ours = TraceContext::of(&ours);
        for (room, kept) in [(4091, 3), (4090, 2), (82, 2), (81, 1), (66, 1)] {
            let mut headers: Headers =
                [("own", "x".repeat(Headers::MAX_BYTES - 3 - room))].into_iter().collect();
            ours.add_to(&mut headers);
            assert_eq!(headers.len(), 1 + kept, "with {room} bytes of room");
            assert!(headers.bytes() <= Headers::MAX_BYTES);
        }
    }
}
