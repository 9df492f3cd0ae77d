//! W3C Trace Context, as far as it is needed to carry a trace from message to message.
//!
//! Source of the format: W3C Recommendation "Trace Context", level 1, section 3.2.

use std::fmt;

use uuid::Uuid;

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
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        Some(TraceParent { trace, span, flags: u8::from_str_radix(flags, 16).ok()? })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_stays_in_its_trace() {
        let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = TraceParent::parse(header).unwrap_or_else(|| panic!("{header}"));
        assert_eq!(parent.to_string(), header);
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
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }
}
