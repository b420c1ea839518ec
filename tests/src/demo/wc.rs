//! What the `wc` of this machine says.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use super::input::Input;
use crate::failure::Failure;
use crate::words::WordRule;

/// A byte that is neither printable in the C locale nor a separator: the first of many UTF-8 letters.
const UNPRINTABLE: &[u8] = b"\xc3";

/// Finds out by which rule this machine's `wc` counts words.
///
/// # Errors
///
/// When there is no `wc`, or it does not answer 0 or 1.
pub(super) fn rule() -> Result<WordRule, Failure> {
    match run(&["-w"], UNPRINTABLE)?.trim() {
        "0" => Ok(WordRule::Printable),
        "1" => Ok(WordRule::Any),
        other => Err(Failure::new(format!("`wc -w` says {other:?} of one byte"))),
    }
}

/// Returns how many words `wc -w` counts in all files, in the C locale.
///
/// # Errors
///
/// When it cannot be run, or complains.
pub(super) fn total(input: &Input) -> Result<u64, Failure> {
    let mut names = Vec::new();
    for file in input.files() {
        names.extend_from_slice(file.path.as_os_str().as_bytes());
        names.push(0);
    }
    let text = run(&["-w", "--files0-from=-"], &names)?;
    // The last line is the total, or that of the only file.
    let last = text
        .lines()
        .last()
        .and_then(|line| line.split_whitespace().next());
    let total = last.and_then(|number| number.parse().ok());
    total.ok_or_else(|| Failure::new(format!("`wc -w` ends with {last:?}")))
}

fn run(arguments: &[&str], stdin: &[u8]) -> Result<String, Failure> {
    let running = |error: std::io::Error| Failure::from(error).during("running wc");
    let mut child = Command::new("wc")
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(running)?;
    let pipe = child.stdin.take();
    // It reads names and writes counts in turn, so both pipes must be served at once.
    let output = std::thread::scope(|scope| {
        let writer = scope.spawn(move || match pipe {
            Some(mut pipe) => pipe.write_all(stdin),
            None => Ok(()),
        });
        let output = child.wait_with_output();
        let written = writer
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("panicked")));
        output.and_then(|output| written.map(|()| output))
    });
    let output = output.map_err(running)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Failure::new(text).during("wc"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::PlainCount;

    #[test]
    fn our_words_are_those_of_wc_for_every_pair_of_bytes() {
        let rule = rule().unwrap();
        let folder = tempfile::tempdir().unwrap();
        // No zero byte: such files are no text and not counted.
        for first in 1..=u8::MAX {
            let text: Vec<u8> = (1..=u8::MAX)
                .flat_map(|second| [first, second, b' ', b'a', first, second])
                .collect();
            std::fs::write(folder.path().join(first.to_string()), text).unwrap();
        }
        let input = Input::find(&[folder.path().to_path_buf()]).unwrap();
        assert_eq!(input.files().len(), 255);
        let mut plain = PlainCount::new(rule);
        for file in input.files() {
            plain.add_file(&std::fs::read(&file.path).unwrap());
        }
        assert_eq!(plain.into_counts().total(), total(&input).unwrap());
    }
}
