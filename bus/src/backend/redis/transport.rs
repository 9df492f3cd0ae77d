//! The transport: what a host opens.

use std::sync::Arc;

use super::answer::text;
use super::client::Client;
use super::config::Config;
use super::consumer::RedisConsumer;
use super::doubts::Doubts;
use super::error::{Lost, error, term_lost};
use super::fence::{self, RedisFencing, Term};
use super::inspect::RedisInspect;
use super::readers::RedisReaders;
use super::script::{BEGIN, Invocation, PREPARE};
use super::send::{RedisDelay, RedisSender};
use super::server::Server;
use super::settle::Claims;
use crate::clock::Clock;
use crate::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, Guarantees, OpenOptions, Reach, Sender, Transport,
};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;
use crate::settings::Order;

pub(super) struct RedisTransport {
    client: Arc<Client>,
    sender: Arc<RedisSender>,
    clock: Clock,
    address: String,
    server: Server,
}

impl RedisTransport {
    pub(super) async fn open(config: Config, options: &OpenOptions) -> Result<Self> {
        let client = Client::open(&config).await?;
        let server = Server::ask(&client).await?;
        server.check()?;
        server.warn_of_loss(&config.server);
        if options.create {
            let begin = Invocation::new(&BEGIN, vec![client.keys.began()]);
            client.beginning.note(text(client.run(&begin, Lost::Again).await?)?);
        }
        let sender = Arc::new(RedisSender::new(Arc::clone(&client)));
        let (clock, address) = (options.clock.clone(), config.address("://"));
        Ok(RedisTransport { client, sender, clock, address, server })
    }

    async fn open_consumer(&self, spec: ConsumerSpec) -> Result<RedisConsumer> {
        let place = self.client.keys.place(&spec.endpoint);
        if !self.is_known(&place.base).await? {
            return Err(error(
                ErrorKind::NotFound,
                "the queue or subscription is not there: it is prepared first",
            )
            .with("endpoint", &spec.endpoint));
        }
        let term = Term::of(&spec);
        if let Some(term) = term {
            let row = fence::row(&self.client, &spec.endpoint).await?;
            match row.map(|row| row.fence) {
                Some(in_force) if in_force == term.fence => {}
                Some(in_force) => return Err(term_lost(term.fence, &in_force.to_string())),
                None => return Err(term_lost(term.fence, "")),
            }
        }
        // As long as a claim may be asked for that was whole when its settlement was sent, and no answer came.
        let doubts = Doubts::new(spec.lease.saturating_add(self.client.timeout()));
        let claims = Claims { place, term, strict: spec.order == Order::Strict, doubts };
        Ok(RedisConsumer::open(Arc::clone(&self.client), self.clock.clone(), spec, claims).await)
    }

    async fn is_known(&self, base: &str) -> Result<bool> {
        let answer = self.client.ask(redis::cmd("EXISTS").arg(format!("{base}meta"))).await?;
        Ok(super::answer::number::<u8>(answer)? == 1)
    }
}

impl Transport for RedisTransport {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            delay: Some(Arc::new(RedisDelay(Arc::clone(&self.client)))),
            enqueue: None,
            fencing: Some(Arc::new(RedisFencing(Arc::clone(&self.client)))),
            inspect: Some(Arc::new(RedisInspect(Arc::clone(&self.client)))),
            readers: Some(Arc::new(RedisReaders(Arc::clone(&self.client)))),
            strict_order: true,
            ..Capabilities::default()
        }
    }

    fn guarantees(&self) -> Guarantees {
        let (acknowledgement, max_body) = (self.server.acknowledgement(), self.client.max_body);
        Guarantees::new(&self.address, Reach::Fleet, acknowledgement, max_body)
            .durable(self.server.durability())
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for endpoint in endpoints {
                let place = self.client.keys.place(endpoint);
                let call = Invocation::new(&PREPARE, place.keys()).with(place.name());
                self.client.run(&call, Lost::Again).await?;
            }
            Ok(())
        })
    }

    fn sender(&self) -> Arc<dyn Sender> {
        Arc::<RedisSender>::clone(&self.sender)
    }

    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        Box::pin(async move { Ok(Arc::new(self.open_consumer(spec).await?) as Arc<dyn Consumer>) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.sender.close().await;
            self.client.close().await;
        })
    }
}
