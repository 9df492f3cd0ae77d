//! `cargo run --release -p failover` starts the experiment; `README.md` tells what it is.

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<std::process::ExitCode> {
    use std::process::ExitCode;

    use clap::Parser;
    use failover::args::{Cli, Role};
    use failover::{checker, driver, host, produce};

    let cli = Cli::parse();
    let report = match cli.role {
        None => driver::run(cli.options)?,
        Some(Role::Check(options)) => {
            let directory =
                options.history.as_ref().ok_or_else(|| anyhow::anyhow!("--history is missing"))?;
            checker::check_directory(directory, &options.plan())?
        }
        Some(Role::Host(part)) => return host::host(&part).map(|()| ExitCode::SUCCESS),
        Some(Role::Produce(part)) => return produce::produce(&part).map(|()| ExitCode::SUCCESS),
    };
    driver::print(&report);
    Ok(report.exit_code().into())
}

/// The signals and clocks that this example is made of are those of Linux.
#[cfg(not(target_os = "linux"))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("this example freezes processes and reads /proc: it needs Linux")
}
