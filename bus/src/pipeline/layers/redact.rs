//! Takes out of what users' code has said what must be neither logged nor kept.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::Error;
use crate::message::Verdict;

type Rule = dyn for<'t> Fn(&'t str) -> Cow<'t, str> + Send + Sync;

/// What stands for a text whose redaction has panicked: nothing of it is shown.
const UNREDACTED: &str = "[not shown: redacting it panicked]";

/// What a program wants to be taken out of texts, if anything.
#[derive(Clone, Default)]
pub struct Redact(Option<Arc<Rule>>);

impl Redact {
    /// Takes out what this rule takes out.
    pub fn by(rule: impl for<'t> Fn(&'t str) -> Cow<'t, str> + Send + Sync + 'static) -> Self {
        Redact(Some(Arc::new(rule)))
    }

    fn text<'t>(rule: &Rule, text: &'t str) -> Cow<'t, str> {
        catch_unwind(AssertUnwindSafe(|| rule(text))).unwrap_or(Cow::Borrowed(UNREDACTED))
    }

    /// The same error, with all its texts redacted.
    pub fn error(&self, error: Error) -> Error {
        match &self.0 {
            None => error,
            Some(rule) => error.reworded(|text| Redact::text(&**rule, text).into_owned()),
        }
    }

    /// The same verdict, with all its texts redacted.
    pub fn verdict(&self, verdict: Verdict) -> Verdict {
        let Some(rule) = &self.0 else { return verdict };
        match verdict {
            Verdict::Retry { after, error } => Verdict::Retry { after, error: self.error(error) },
            Verdict::DeadLetter { reason, error } => Verdict::DeadLetter {
                reason: Redact::text(&**rule, &reason).into_owned(),
                error: error.map(|error| self.error(error)),
            },
            other => other,
        }
    }
}

impl fmt::Debug for Redact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redact").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn every_text_of_an_error_is_redacted() {
        let redact = Redact::by(|text| text.replace("s3cret", "…").into());
        let error = Error::new(ErrorKind::Handler, "s3cret above")
            .with("password", "s3cret")
            .caused_by(Error::new(ErrorKind::Handler, "s3cret below").caused_by("s3cret at the bottom"));
        let verdict = Verdict::DeadLetter { reason: "no s3cret".into(), error: Some(error) };
        let Verdict::DeadLetter { reason, error: Some(error) } = redact.verdict(verdict) else {
            panic!("the verdict is another")
        };
        assert_eq!(reason, "no …");
        assert_eq!(error.with_causes(), "… above (password: …): … below: … at the bottom");
        assert_eq!(error.kind(), ErrorKind::Handler);
    }

    #[test]
    fn what_cannot_be_redacted_is_not_shown() {
        let redact = Redact::by(|_| panic!("on purpose"));
        let error = redact.error(Error::new(ErrorKind::Handler, "s3cret"));
        assert_eq!(error.to_string(), UNREDACTED);
    }
}
