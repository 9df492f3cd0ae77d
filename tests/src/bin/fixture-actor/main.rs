//! A host whose handlers do what their messages say, and write down when they do it. Its arguments are the endpoints
//! that it reads; without any, it reads all.

mod diary;
mod end_of_process;
mod handlers;
mod plugin;
mod trap;

use bus::Host;
use bus::host::config::Config;
use bus_tests::journal::{Entry, Journal};

#[tokio::main]
async fn main() -> bus::Result<()> {
    diary::listen(Journal::of_this_process());
    trap::set();
    let endpoints: Vec<String> = std::env::args().skip(1).collect();
    let mut host = Host::builder().config(Config::from_env()?);
    if !endpoints.is_empty() {
        host = host.only(endpoints.iter().map(String::as_str));
    }
    let outcome = plugin::add(host).build()?.run().await;
    Journal::of_this_process().write(&Entry::now("returned"));
    outcome
}
