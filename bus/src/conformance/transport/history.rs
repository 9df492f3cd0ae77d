//! Random histories, made smaller when one fails, and named by a seed.

use std::time::Duration;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::bench::Bench;
use super::machine::{Machine, Reader};
use super::step::{Step, steps};
use crate::conformance::case::{cases, told_histories};
use crate::conformance::{Checked, Failure};

/// How often a failing history is made smaller at most: against a real store each try takes its time.
const MOST_SHRINKS: usize = 300;
/// And for how long, so that the case ends with what it has found.
const LONGEST_SHRINKING: Duration = Duration::from_secs(150);

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        plain_histories_match_the_model = "Whatever two hosts do with a queue, it answers as the model does.";
        [StrictOrder] strict_histories_match_the_model = "Whatever is done in strict order, it answers as the model does.";
        [Fencing] singleton_histories_match_the_model = "Whatever terms do one after another, it answers as the model does.";
    }
}

async fn plain_histories_match_the_model(bench: &Bench) -> Checked {
    histories(bench, Reader::Plain).await
}

async fn strict_histories_match_the_model(bench: &Bench) -> Checked {
    histories(bench, Reader::Strict).await
}

async fn singleton_histories_match_the_model(bench: &Bench) -> Checked {
    histories(bench, Reader::Singleton).await
}

/// Tries random histories; the seed of each is its own, so that a failing one can be had again alone.
async fn histories(bench: &Bench, reader: Reader) -> Checked {
    let seeds: Vec<u64> = match std::env::var("BUS_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..told_histories().unwrap_or(bench.timing.histories)).map(|_| rand_seed()).collect(),
    };
    for seed in seeds {
        let steps = History { seed, tried: Vec::new() }.steps()?;
        let Some(steps) = steps else { continue };
        if let Err(failure) = try_history(bench, reader, &steps).await {
            let (smallest, failure) = shrink(bench, reader, seed, (steps, failure)).await?;
            return Err(Failure::new(format!(
                "{failure}\n  history:  {smallest:#?}\n  again:    BUS_TEST_SEED={seed}"
            )));
        }
    }
    Ok(())
}

fn rand_seed() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    high ^ low
}

/// A history of proptest's making, and how often it has been made smaller: what names it, since proptest's own tree of
/// values cannot be kept while the store is awaited.
struct History {
    seed: u64,
    /// For each smaller history that was tried: whether it failed too.
    tried: Vec<bool>,
}

impl History {
    /// Its steps; `None` if there is no smaller history left.
    fn steps(&self) -> Checked<Option<Vec<Step>>> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut tree = steps()
            .new_tree(&mut TestRunner::new_with_rng(Config::default(), rng))
            .map_err(|reason| Failure::new(format!("no history could be made: {reason}")))?;
        for failed in &self.tried {
            let smaller = if *failed { tree.simplify() } else { tree.complicate() };
            if !smaller {
                return Ok(None);
            }
        }
        Ok(Some(tree.current()))
    }
}

async fn try_history(bench: &Bench, reader: Reader, steps: &[Step]) -> Checked {
    let name = format!("history-{:016x}", rand_seed());
    let mut machine = Machine::open(bench, reader, &name).await?;
    for (number, step) in steps.iter().enumerate() {
        let told = |failure| Failure::new(format!("in step {number}: {failure}"));
        machine.run(step).await.map_err(told)?;
    }
    machine.finish().await.map_err(|failure| Failure::new(format!("at the end: {failure}")))
}

/// Makes a failing history smaller as long as it goes on failing.
async fn shrink(
    bench: &Bench,
    reader: Reader,
    seed: u64,
    mut smallest: (Vec<Step>, Failure),
) -> Checked<(Vec<Step>, Failure)> {
    let mut history = History { seed, tried: vec![true] };
    let began = tokio::time::Instant::now();
    while history.tried.len() < MOST_SHRINKS
        && began.elapsed() < LONGEST_SHRINKING
        && let Some(steps) = history.steps()?
    {
        let result = try_history(bench, reader, &steps).await;
        history.tried.push(result.is_err());
        if let Err(failure) = result {
            smallest = (steps, failure);
        }
    }
    Ok(smallest)
}
