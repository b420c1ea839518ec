//! The store in memory, by the instructions of a write: nothing there lasts long enough for a clock.
//!
//! Valgrind counts them, of this program run once more with nothing to do but write: once few times and
//! once many times, so that the difference is that of the writes.

use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;

use benches::rounds::Writes;
use benches::table::{self, Table};
use bytes::Bytes;
use cluster_tests::failure::Failure;
use tenure_fence::MemoryStore;

use crate::VALUE_BYTES;
use crate::fenced::Fenced;
use crate::stores::PlainMemory;

const FEW: u64 = 1_000;
const MANY: u64 = 11_000;

/// The most instructions of a fenced write, as a multiple of those of an unfenced one.
const TARGET: f64 = 3.0;

/// What is to be counted.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    is_fenced: bool,
    writes: u64,
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, writes) = text.split_once(':').ok_or("no number of writes")?;
        let writes = writes.parse();
        Ok(Self {
            is_fenced: kind == "fenced",
            writes: writes.map_err(|_| "no number of writes")?,
        })
    }
}

/// Writes and does nothing else.
pub(crate) fn write(count: &Count) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let writes: Arc<dyn Writes> = if count.is_fenced {
            Arc::new(Fenced::seal(MemoryStore::new(), 1).await?)
        } else {
            Arc::new(PlainMemory::new(1)?)
        };
        let value = Bytes::from(vec![7; VALUE_BYTES]);
        for _ in 0..count.writes {
            writes.write(0, value.clone()).await?;
        }
        Ok(())
    })
}

/// Counts the instructions of a write, unfenced and fenced.
pub(crate) fn count() -> Result<Table, Failure> {
    eprintln!("memory, by instructions");
    let unfenced = instructions("unfenced")?;
    let fenced = instructions("fenced")?;
    let ratio = fenced / unfenced;
    let mut table = Table::new(&[
        "store",
        "instructions of an unfenced write",
        "of a fenced one",
        "fenced / unfenced",
        "target",
        "met",
    ]);
    table.add(vec![
        "memory".to_owned(),
        table::rate(unfenced),
        table::rate(fenced),
        format!("{ratio:.2}"),
        format!("≤ {TARGET:.2}"),
        if ratio <= TARGET { "yes" } else { "no" }.to_owned(),
    ]);
    Ok(table)
}

fn instructions(kind: &str) -> Result<f64, Failure> {
    let counted = |writes| total(&format!("{kind}:{writes}"));
    let more = counted(MANY)?.saturating_sub(counted(FEW)?);
    Ok(more as f64 / (MANY - FEW) as f64)
}

/// Runs this program under Valgrind and returns how many instructions that took.
fn total(count: &str) -> Result<u64, Failure> {
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["--count", count])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::from(error).during("valgrind, which `make bench` installs"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let collected = said
        .lines()
        .find_map(|line| line.split_once("Collected : ")?.1.split_whitespace().next());
    match collected {
        Some(number) if ran.status.success() => Ok(number.parse()?),
        _ => Err(Failure::new(format!(
            "valgrind has counted nothing: {said}"
        ))),
    }
}
