//! Runs Azurite by hand: prints its connection string once it answers, and ends it when standard input ends.
//!
//! ```sh
//! cargo run -p bus-emulators --bin azurite
//! ```
//!
//! With `--shared` it is the one that all tests share.

use std::io::{self, Write};

use bus_emulators::{Azurite, Error, Storage};

fn main() -> Result<(), Error> {
    if std::env::args().any(|argument| argument == "--shared") {
        serve(Azurite::shared()?);
    } else {
        serve(&*Azurite::start()?);
    }
    Ok(())
}

fn serve(storage: &Storage) {
    // Nobody reads it any more: then standard input is going to end, too.
    let _ = writeln!(io::stdout(), "{}", storage.connection_string());
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
}
