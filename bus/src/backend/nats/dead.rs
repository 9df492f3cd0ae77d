//! Dead letters: each in the stream of dead letters, under its endpoint and id, with what is said of it before the
//! message itself.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::body;
use super::client::{Ask, Client};
use super::error::{Lost, unexpected};
use super::jetstream::{Stored, Written};
use super::streams::Home;
use crate::contract::DeadLetter;
use crate::error::{Error, Result};
use crate::message::{Endpoint, MessageId};

/// How much of a reason and of an error is kept, in bytes: a letter has to fit where its message did.
const LONGEST_TEXT: usize = 4 << 10;

/// What is said of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    reason: String,
    error: Option<String>,
    deliveries: u32,
}

fn shortened(text: &str) -> String {
    let end = (0..=text.len().min(LONGEST_TEXT)).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

impl Client {
    /// Keeps a message, as it is stored, among the dead letters; answers the letter's number.
    pub(super) async fn bury(
        &self,
        endpoint: &Endpoint,
        id: MessageId,
        payload: &Bytes,
        (reason, error): (&str, Option<&Error>),
        deliveries: u32,
        until: Instant,
    ) -> Result<u64> {
        let error = error.map(|error| shortened(&error.with_causes()));
        let said = Said { reason: shortened(reason), error, deliveries };
        let said = serde_json::to_string(&said)
            .map_err(|cause| unexpected("a dead letter that cannot be written").caused_by(cause))?;
        let mut letter = Vec::with_capacity(said.len() + payload.len() + 4);
        body::put_text(&mut letter, &said);
        letter.extend_from_slice(payload);
        let ask = Ask::new(self.names.dead_letter(endpoint, id.as_uuid()), letter);
        match self.write(&Home::Dead, ask, until, Lost::Again).await? {
            Written::As(number) => Ok(number),
            Written::Conflict => Err(unexpected("a conflict where there is no condition")),
        }
    }
}

/// A dead letter as it is stored; `None` if it is none of ours.
pub(super) fn read(endpoint: &Endpoint, stored: &Stored) -> Option<DeadLetter> {
    let mut rest = stored.data.clone();
    let said: Said = serde_json::from_str(&body::take_text(&mut rest)?).ok()?;
    let id = stored.subject.rsplit_once('.')?.1.parse::<MessageId>().ok()?;
    let mut envelope = body::decode(&rest).unwrap_or_else(|| body::raw(rest));
    envelope.id = id;
    let Said { reason, error, deliveries } = said;
    Some(DeadLetter::new(envelope, endpoint.clone(), reason, error, stored.time, deliveries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shortened("no such tenant"), "no such tenant");
        let long = "å".repeat(LONGEST_TEXT);
        assert_eq!(shortened(&long).len(), LONGEST_TEXT);
        assert!(shortened(&format!("x{long}")).len() < LONGEST_TEXT);
    }
}
