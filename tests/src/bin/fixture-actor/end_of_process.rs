//! The ways in which a handler can end the process that it runs in.

use bus_tests::task::Death;
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};

/// How much memory there is left for one that takes all it can get: little, so that the machine does not notice.
const LEFT: u64 = 256 << 20;

/// Ends this process.
pub(crate) fn come(death: Death) -> ! {
    match death {
        Death::Abort => {}
        Death::Exit(code) => std::process::exit(code),
        Death::Kill => kill_process(getpid(), Signal::KILL).expect("a process can kill itself"),
        Death::Overflow => {
            overflow(0);
        }
        Death::Exhaust => exhaust(),
        Death::PanicTwice => {
            let _second = PanicsWhenDropped;
            panic!("the first");
        }
    }
    std::process::abort()
}

#[allow(unconditional_recursion, reason = "that is what it is for")]
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    overflow(depth + 1) + std::hint::black_box(frame)[0]
}

fn exhaust() {
    let used = std::fs::read_to_string("/proc/self/statm").ok();
    let pages: u64 = used.and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0);
    let limit = Some(pages * 4096 + LEFT);
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: limit, maximum }).expect("a limit can be lowered");
    let mut leaked: Vec<Vec<u8>> = Vec::new();
    loop {
        leaked.push(vec![1; 1 << 20]);
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("the second");
    }
}
