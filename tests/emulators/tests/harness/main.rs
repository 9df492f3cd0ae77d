//! The harness is judged, too: the proxy by a client and a service that share no code with it, Azurite by requests
//! that are signed here.

mod heavy_azurite;
mod heavy_install;
mod http;
mod proxy;
mod service;
mod shared_key;
