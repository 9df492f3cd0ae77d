//! The queue service of an account, as far as the transport needs it: each call with a deadline, tried again where that
//! may help and can do no harm, and not before the service wants to be asked again.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use azure_core::http::RequestContent;
use azure_core::http::headers::HeaderName;
use azure_core::time::OffsetDateTime;
use azure_storage_queue::models::{
    ListQueuesIncludeType, PeekedMessage, QueueClientGetPropertiesResultHeaders,
    QueueClientPeekMessagesOptions, QueueClientReceiveMessagesOptions, QueueClientSendMessageOptions,
    QueueClientUpdateMessageOptions, QueueItem, QueueMessage, QueueServiceClientListQueuesOptions,
    ReceivedMessage,
};
use azure_storage_queue::{QueueClient, QueueServiceClient, QueueServiceClientOptions};
use futures_util::TryStreamExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::call::{Answer, Called, Effort, LONGEST_PAUSE, call_with};
use super::super::client::Container;
use super::super::error::{Advice, Failure, error};
use super::super::http;
use super::clock::ServiceClock;
use super::config::Config;
use super::name::Prefix;
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, ErrorKind, Result};

/// What a call may take in all.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// What one try may take where it may be made again: a connection that has died unseen is given up for another.
const EACH: Duration = Duration::from_secs(5);
/// What one try may take that looks whether the service is there again.
const LOOK: Duration = Duration::from_secs(2);
/// What claiming may take. It is made once: what is claimed without our hearing of it comes back when its lease ends, so
/// that a slow answer is better waited for.
const TO_CLAIM: Duration = Duration::from_secs(8);
/// However long the service wants to be left alone, it is asked again after this.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);
/// How many messages Azure gives in one call.
pub(super) const MOST_AT_ONCE: usize = 32;
/// For how long a message can be out of sight.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Where credentials do not permit what is asked.
const PERMITTED: &str = "the credentials do not permit this: a SAS of the account for ss=bq and srt=sco needs the permissions rwdlacup";

const POP_RECEIPT: HeaderName = HeaderName::from_static("x-ms-popreceipt");

/// The queues of an account, and the container of their large bodies.
pub(super) struct Service {
    client: QueueServiceClient,
    pub(super) bodies: Container,
    pub(super) prefix: Prefix,
    pub(super) clock: ServiceClock,
    advice: Advice,
    /// Host, path and prefix, without credentials.
    shown: String,
    /// Until when the queue of that name wants to be left alone.
    silent: Mutex<HashMap<String, Instant>>,
}

/// A message that has been taken from its queue, or looked at there.
pub(super) struct Taken {
    /// Azure's name for it.
    pub(super) id: String,
    /// Azure's name for the claim; empty if it was only looked at.
    pub(super) receipt: String,
    /// How often it has been taken.
    pub(super) times: u32,
    /// When it was put there, by the service's clock.
    pub(super) put_at: Timestamp,
    pub(super) text: String,
}

/// What is kept beside a queue: texts by their names.
pub(super) type Metadata = HashMap<String, String>;

/// A queue that is there.
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) metadata: Metadata,
}

/// Where a message was put.
pub(super) struct Put {
    pub(super) id: String,
    pub(super) receipt: String,
}

impl Service {
    /// Prepares everything, and connects to nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there can be no TLS, or an address is none for the client.
    pub(super) fn new(config: &Config, clock: Clock) -> Result<Self> {
        let endpoint = &config.queues.endpoint;
        let mut url = endpoint.service();
        let client_options = http::options(&config.queues, &mut url)?;
        let options = QueueServiceClientOptions { client_options, ..Default::default() };
        let client = QueueServiceClient::new(url, None, Some(options))
            .map_err(|_| error(ErrorKind::Config, "the queues' address is none that Azure's client takes"))?;
        Ok(Service {
            client,
            bodies: Container::new(&config.blobs, &config.prefix.container(), PERMITTED)?,
            prefix: config.prefix.clone(),
            clock: ServiceClock::new(clock),
            advice: Advice { accepted: config.queues.credential.advice(), permitted: PERMITTED },
            shown: format!("{endpoint}{}", config.prefix),
            silent: Mutex::default(),
        })
    }

    /// A failure as an error, for people.
    pub(super) fn describe(&self, failure: Failure) -> Error {
        failure.into_error(self.advice).with("queues", self)
    }

    fn queue(&self, name: &str) -> azure_core::Result<QueueClient> {
        self.client.queue_client(name)
    }

    /// Makes a request about a queue, unless the service wants to be left alone for longer than an answer is of use.
    async fn make<T, F>(&self, queue: &str, effort: Effort, request: impl FnMut() -> F) -> Called<T>
    where
        F: Future<Output = azure_core::Result<T>>,
    {
        let silent = self.silent.lock().get(queue).copied();
        if let Some(until) = silent {
            if until >= effort.deadline {
                let refused =
                    Failure::Refused { status: 503, code: None, request_id: None, retry_after: None };
                tokio::time::sleep_until(effort.deadline.min(Instant::now() + LONGEST_PAUSE)).await;
                return Called { answer: Err(refused), perhaps_before: false };
            }
            tokio::time::sleep_until(until).await;
        }
        let called = call_with(effort, request).await;
        match called.answer.as_ref().err().map(Failure::retry_after).filter(|silence| !silence.is_zero()) {
            Some(silence) => {
                let until = Instant::now() + silence.min(LONGEST_SILENCE);
                self.silent.lock().insert(queue.to_owned(), until);
            }
            None if silent.is_some() => drop(self.silent.lock().remove(queue)),
            None => {}
        }
        called
    }

    /// The same, for what may be done twice.
    async fn ask<T, F>(&self, queue: &str, request: impl FnMut() -> F) -> Answer<T>
    where
        F: Future<Output = azure_core::Result<T>>,
    {
        let effort = Effort { deadline: Instant::now() + PATIENCE, each: EACH, again: true };
        self.make(queue, effort, request).await.answer
    }

    /// Puts a text into a queue, to be seen after a time. Not tried again where it may be there already.
    pub(super) async fn put(&self, queue: &str, text: &str, wait: Duration) -> Answer<Put> {
        let effort = Effort { deadline: Instant::now() + PATIENCE, each: PATIENCE, again: false };
        let put = || async {
            let options = QueueClientSendMessageOptions {
                // It never vanishes by itself.
                message_time_to_live: Some(-1),
                visibility_timeout: Some(seconds(wait)),
                ..Default::default()
            };
            let answer = self.queue(queue)?.send_message(content(text)?, Some(options)).await?;
            self.clock.heed(answer.headers());
            answer.into_model()?.into_message()
        };
        let message = self.make(queue, effort, put).await.answer?;
        match (message.message_id, message.pop_receipt) {
            (Some(id), Some(receipt)) => Ok(Put { id, receipt }),
            _ => Err(Failure::Client("the answer names no message".to_owned())),
        }
    }

    /// Takes up to `count` messages, out of sight of all others for so long. Not tried again where it may have happened:
    /// what is taken without our knowing comes back by itself.
    pub(super) async fn take(&self, queue: &str, count: usize, lease: Duration) -> Answer<Vec<Taken>> {
        let effort = Effort { deadline: Instant::now() + PATIENCE, each: TO_CLAIM, again: false };
        let take = || async {
            let options = QueueClientReceiveMessagesOptions {
                number_of_messages: Some(number(count)),
                visibility_timeout: Some(seconds(lease).max(1)),
                ..Default::default()
            };
            let answer = self.queue(queue)?.receive_messages(Some(options)).await?;
            self.clock.heed(answer.headers());
            answer.into_model()
        };
        let taken = self.make(queue, effort, take).await.answer?;
        Ok(taken.items.unwrap_or_default().into_iter().filter_map(Taken::read).collect())
    }

    /// Looks at the first messages that could be taken.
    pub(super) async fn look(&self, queue: &str, count: usize) -> Answer<Vec<Taken>> {
        let look = || async {
            let options = QueueClientPeekMessagesOptions {
                number_of_messages: Some(number(count)),
                ..Default::default()
            };
            self.queue(queue)?.peek_messages(Some(options)).await?.into_model()
        };
        let seen = self.ask(queue, look).await?;
        Ok(seen.items.unwrap_or_default().into_iter().filter_map(Taken::seen).collect())
    }

    /// Keeps a message out of sight for so long from now on, and gives it another text where there is one. Answers the
    /// receipt that counts from then on: the one that was named does not.
    pub(super) async fn update(
        &self,
        queue: &str,
        (id, receipt): (&str, &str),
        wait: Duration,
        text: Option<&str>,
        effort: Effort,
    ) -> Called<String> {
        let update = || async {
            let options = QueueClientUpdateMessageOptions {
                queue_message: text.map(content).transpose()?,
                ..Default::default()
            };
            let answer = self.queue(queue)?.update_message(id, receipt, seconds(wait), Some(options)).await?;
            answer.headers().get_str(&POP_RECEIPT).map(str::to_owned)
        };
        self.make(queue, effort, update).await
    }

    /// Deletes a message.
    pub(super) async fn delete(&self, queue: &str, (id, receipt): (&str, &str)) -> Called<()> {
        let delete = || async { self.queue(queue)?.delete_message(id, receipt, None).await.map(drop) };
        self.make(queue, may_be_repeated(), delete).await
    }

    /// How many messages a queue has, in whatever state.
    pub(super) async fn count(&self, queue: &str) -> Answer<u64> {
        let properties =
            || async { self.queue(queue)?.get_properties(None).await?.approximate_messages_count() };
        Ok(self.ask(queue, properties).await?.and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
    }

    /// Whether the service answers at all, be it with a refusal, within the time of one try.
    pub(super) async fn answers(&self) -> bool {
        let look = async {
            let options = QueueServiceClientListQueuesOptions {
                prefix: Some(self.prefix.beginning()),
                maxresults: Some(1),
                ..Default::default()
            };
            self.client.list_queues(Some(options))?.try_next().await.map(drop)
        };
        match tokio::time::timeout(LOOK, look).await {
            Ok(answer) => !answer.is_err_and(|cause| Failure::from(cause).is_outage()),
            Err(_) => false,
        }
    }

    /// The names of all queues that begin so.
    pub(super) async fn list(&self, beginning: &str) -> Answer<Vec<String>> {
        Ok(self.list_with(beginning, None).await?.into_iter().filter_map(|queue| queue.name).collect())
    }

    /// All queues that begin so, with what is kept beside them.
    pub(super) async fn list_all(&self, beginning: &str) -> Answer<Vec<Listed>> {
        let listed = self.list_with(beginning, Some(vec![ListQueuesIncludeType::Metadata])).await?;
        let read = |queue: QueueItem| {
            Some(Listed { name: queue.name?, metadata: queue.metadata.unwrap_or_default() })
        };
        Ok(listed.into_iter().filter_map(read).collect())
    }

    async fn list_with(
        &self,
        beginning: &str,
        include: Option<Vec<ListQueuesIncludeType>>,
    ) -> Answer<Vec<QueueItem>> {
        let list = || async {
            let options = QueueServiceClientListQueuesOptions {
                prefix: Some(beginning.to_owned()),
                include: include.clone(),
                ..Default::default()
            };
            let mut pages = self.client.list_queues(Some(options))?.into_pages();
            let mut queues = Vec::new();
            while let Some(page) = pages.try_next().await? {
                self.clock.heed(page.headers());
                queues.extend(page.into_model()?.queue_items);
            }
            Ok(queues)
        };
        self.ask("", list).await
    }

    /// What is kept beside a queue.
    pub(super) async fn metadata(&self, queue: &str) -> Answer<Metadata> {
        let properties = || async {
            let answer = self.queue(queue)?.get_properties(None).await?;
            self.clock.heed(answer.headers());
            answer.metadata()
        };
        self.ask(queue, properties).await
    }

    /// Keeps this beside a queue, and nothing else.
    pub(super) async fn set_metadata(&self, queue: &str, metadata: &Metadata) -> Answer<()> {
        let set = || async { self.queue(queue)?.set_metadata(metadata, None).await.map(drop) };
        self.ask(queue, set).await
    }

    /// Deletes a queue with everything in it; whether it was there, as far as that can be told.
    pub(super) async fn delete_queue(&self, queue: &str) -> Answer<bool> {
        let delete = || async { self.queue(queue)?.delete(None).await.map(drop) };
        match self.ask(queue, delete).await {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_missing_queue() || failure.is_being_deleted() => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Makes a queue; that it is there already is as good. Waits for one of that name that is being deleted, but not for
    /// longer than a call may take.
    pub(super) async fn create(&self, queue: &str) -> Answer<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let create = || async { self.queue(queue)?.create(None).await.map(drop) };
            match self.ask(queue, create).await {
                Err(failure) if failure.is_being_deleted() && Instant::now() + LONGEST_PAUSE < deadline => {
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
                Err(failure) if failure.is_there() => return Ok(()),
                answer => return answer,
            }
        }
    }
}

/// The effort for what may be done twice.
pub(super) fn may_be_repeated() -> Effort {
    Effort { deadline: Instant::now() + PATIENCE, each: EACH, again: true }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Taken {
    fn read(message: ReceivedMessage) -> Option<Self> {
        Some(Taken {
            id: message.message_id?,
            receipt: message.pop_receipt?,
            times: count_of(message.dequeue_count),
            put_at: time_of(message.insertion_time),
            text: message.message_text.unwrap_or_default(),
        })
    }

    fn seen(message: PeekedMessage) -> Option<Self> {
        Some(Taken {
            id: message.message_id?,
            receipt: String::new(),
            times: count_of(message.dequeue_count),
            put_at: time_of(message.insertion_time),
            text: message.message_text.unwrap_or_default(),
        })
    }
}

/// The service says it of every message.
fn time_of(time: Option<OffsetDateTime>) -> Timestamp {
    time.map_or(Timestamp::from_micros(0), |time| Timestamp::from(SystemTime::from(time)))
}

fn content(text: &str) -> azure_core::Result<RequestContent<QueueMessage, azure_core::http::XmlFormat>> {
    QueueMessage { message_text: Some(text.to_owned()) }.try_into()
}

fn count_of(times: Option<i64>) -> u32 {
    times.and_then(|times| u32::try_from(times).ok()).unwrap_or(1)
}

fn number(count: usize) -> i32 {
    i32::try_from(count.clamp(1, MOST_AT_ONCE)).unwrap_or(1)
}

/// Azure's times are whole seconds: never shorter than what they stand for.
fn seconds(time: Duration) -> i32 {
    let time = time.min(LONGEST_WAIT);
    i32::try_from(time.as_secs() + u64::from(time.subsec_nanos() > 0)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_whole_seconds_and_end_at_seven_days() {
        for (millis, whole) in
            [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (604_800_000, 604_800), (u64::MAX, 604_800)]
        {
            assert_eq!(seconds(Duration::from_millis(millis)), whole);
        }
    }

    #[test]
    fn azure_gives_32_at_once() {
        assert_eq!((number(0), number(32), number(usize::MAX)), (1, 32, 32));
    }
}
