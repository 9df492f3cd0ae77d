//! Azure's REST interface as it is: what others do with queues and blobs, by a shared access signature. Shares no code with
//! `bus`.

use std::collections::BTreeMap;

use reqwest::{Client, Method, RequestBuilder};

/// The services of an account.
#[derive(Clone)]
pub(crate) struct Raw {
    client: Client,
    queues: String,
    blobs: String,
    sas: String,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) text: String,
    count: Option<u64>,
    /// What is kept beside a queue, by lower-case names.
    metadata: BTreeMap<String, String>,
}

impl Answered {
    /// The contents of all elements of that name, in their order.
    pub(crate) fn all(&self, element: &str) -> Vec<String> {
        let (open, close) = (format!("<{element}>"), format!("</{element}>"));
        let parts = self.text.split(&open).skip(1);
        parts.filter_map(|part| Some(part.split_once(&close)?.0.to_owned())).collect()
    }
}

impl Raw {
    pub(crate) fn new(queues: &str, blobs: &str, sas: String) -> Raw {
        let client = Client::builder().no_proxy().tls_certs_only([]).build().expect("a client");
        Raw { client, queues: queues.to_owned(), blobs: blobs.to_owned(), sas }
    }

    async fn ask(
        &self,
        method: Method,
        service: &str,
        path: &str,
        parameters: &str,
        body: String,
    ) -> Answered {
        let url = format!("{service}/{path}?{}{parameters}", self.sas);
        let request = self.client.request(method, url).header("x-ms-version", "2021-12-02");
        Raw::answered(request, body).await
    }

    async fn answered(request: RequestBuilder, body: String) -> Answered {
        let answer = request.header("content-length", body.len().to_string()).body(body).send().await;
        let answer = answer.expect("Azurite answers");
        let header =
            |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let count = header("x-ms-approximate-messages-count").parse();
        let status = answer.status().as_u16();
        let names = answer.headers().keys().filter_map(|name| name.as_str().strip_prefix("x-ms-meta-"));
        let named = |name: &str| (name.to_owned(), header(&format!("x-ms-meta-{name}")).to_owned());
        let metadata = names.map(named).collect();
        Answered { status, metadata, count: count.ok(), text: answer.text().await.expect("a text") }
    }

    async fn ask_queues(&self, method: Method, path: &str, parameters: &str, body: String) -> Answered {
        self.ask(method, &self.queues, path, parameters, body).await
    }

    /// Puts a text into a queue as it is.
    pub(crate) async fn put(&self, queue: &str, text: &str) -> Answered {
        let body = format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>");
        self.ask_queues(Method::POST, &format!("{queue}/messages"), "&messagettl=-1", body).await
    }

    /// Looks at the first messages.
    pub(crate) async fn peek(&self, queue: &str) -> Answered {
        let parameters = "&peekonly=true&numofmessages=32";
        self.ask_queues(Method::GET, &format!("{queue}/messages"), parameters, String::new()).await
    }

    /// How many messages there are, in whatever state.
    pub(crate) async fn count(&self, queue: &str) -> u64 {
        let answer = self.ask_queues(Method::GET, queue, "&comp=metadata", String::new()).await;
        answer.count.unwrap_or_else(|| panic!("no count of {queue}: {answer:?}"))
    }

    /// Keeps a text beside a queue, and nothing else.
    pub(crate) async fn keep(&self, queue: &str, name: &str, text: &str) -> Answered {
        let url = format!("{}/{queue}?{}&comp=metadata", self.queues, self.sas);
        let request = self.client.put(url).header("x-ms-version", "2021-12-02");
        Raw::answered(request.header(format!("x-ms-meta-{name}"), text), String::new()).await
    }

    /// What is kept beside a queue under that name; empty if nothing is.
    pub(crate) async fn kept(&self, queue: &str, name: &str) -> String {
        let answer = self.ask_queues(Method::GET, queue, "&comp=metadata", String::new()).await;
        answer.metadata.get(name).cloned().unwrap_or_default()
    }

    pub(crate) async fn delete_queue(&self, queue: &str) -> Answered {
        self.ask_queues(Method::DELETE, queue, "", String::new()).await
    }

    /// Deletes all messages.
    pub(crate) async fn clear(&self, queue: &str) -> Answered {
        self.ask_queues(Method::DELETE, &format!("{queue}/messages"), "", String::new()).await
    }

    /// The names of a container's blobs.
    pub(crate) async fn blobs(&self, container: &str) -> Vec<String> {
        let parameters = "&restype=container&comp=list";
        self.ask(Method::GET, &self.blobs, container, parameters, String::new()).await.all("Name")
    }

    pub(crate) async fn delete_blob(&self, container: &str, blob: &str) -> Answered {
        let path = format!("{container}/{blob}");
        self.ask(Method::DELETE, &self.blobs, &path, "", String::new()).await
    }
}
