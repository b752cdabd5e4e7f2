//! The library without an operating system: programs for a Cortex-M4F and a Cortex-M0 are built by
//! examples-c/firmware/Makefile and run by qemu; what they take of flash and RAM has limits.

use slicepool_tests::{has_target, has_tool, root, run_any};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, fs};

const LIMIT: Duration = Duration::from_secs(60);
const TARGETS: [&str; 2] = ["thumbv7em-none-eabihf", "thumbv6m-none-eabi"];

/// Where the programs are built, once per run; `None` where something needed is missing.
fn out() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| can_build().then(build));
    if built.is_none() {
        // Every test says so.
        can_build();
    }
    built.as_deref()
}

fn can_build() -> bool {
    has_tool("arm-none-eabi-gcc", "gcc-arm-none-eabi")
        && has_tool("qemu-system-arm", "qemu-system-arm")
        && has_tool("make", "make")
        && TARGETS.iter().all(|target| has_target(target))
}

fn build() -> PathBuf {
    let out = root().join("target").join("firmware");
    let mut make = Command::new("make");
    make.arg("-C").arg(root().join("examples-c/firmware")).arg("all").arg(format!("OUT={}", out.display()));
    // Neither flags nor a target directory of the build under test.
    for name in ["RUSTFLAGS", "CARGO_TARGET_DIR", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        make.env_remove(name);
    }
    if let Some(cargo) = env::var_os("CARGO") {
        make.env("CARGO", cargo);
    }
    let output = make.output().expect("make runs");
    assert!(output.status.success(), "the programs do not build:\n{}", String::from_utf8_lossy(&output.stderr));
    out
}

/// The machine that a program is for.
fn machine(program: &str) -> &'static str {
    if program.starts_with("m0-") { "microbit" } else { "mps2-an386" }
}

/// Runs a program to its end.
fn emulate_file(machine: &str, program: &Path) -> Output {
    let arguments = ["-M", machine, "-nographic", "-icount", "shift=5", "-semihosting-config"];
    let program = program.to_str().expect("a path of text");
    let arguments = [&arguments[..], &["enable=on,target=native", "-kernel", program]].concat();
    run_any(Path::new("qemu-system-arm"), &arguments, LIMIT)
}

fn emulate(out: &Path, program: &str) -> Output {
    emulate_file(machine(program), &out.join(program).with_extension("elf"))
}

/// What a program prints that has to succeed.
fn printed(out: &Path, program: &str) -> String {
    let output = emulate(out, program);
    // The console of semihosting is the emulator's standard error.
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{program}: {}\n{text}", output.status);
    text
}

fn line<'a>(printed: &'a str, beginning: &str) -> &'a str {
    let found = printed.lines().find_map(|line| line.strip_prefix(beginning)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no line begins with `{beginning}`:\n{printed}"))
}

fn number(printed: &str, beginning: &str) -> u64 {
    line(printed, beginning).parse().expect("a number")
}

/// text, data and bss of a program.
fn sizes(out: &Path, program: &str) -> [u64; 3] {
    let file = out.join(program).with_extension("elf");
    let output = Command::new("arm-none-eabi-size").arg(file).output().expect("it comes with the compiler");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = text.lines().nth(1).unwrap_or_else(|| panic!("no sizes of {program}: {text}"));
    let mut columns = row.split_whitespace().map(|column| column.parse().expect("a number"));
    std::array::from_fn(|_| columns.next().expect("three columns"))
}

#[test]
fn every_program_ends_well() {
    let Some(out) = out() else { return };
    for program in ["m4-pools", "m4-complete-pools", "m0-pools"] {
        printed(out, program);
    }
}

#[test]
fn a_check_that_fails_ends_the_emulator_with_a_status() {
    let Some(out) = out() else { return };
    assert_eq!(emulate(out, "m4-no-room").status.code(), Some(1), "a block of 512 bytes has no room for books");
}

#[test]
fn an_interrupt_may_allocate_and_free_through_the_allocator_it_interrupts() {
    let Some(out) = out() else { return };
    for program in ["m4-interrupts", "m4-complete-interrupts", "m0-interrupts"] {
        let printed = printed(out, program);
        assert!(number(&printed, "interrupts") >= 500, "{printed}");
        assert!(number(&printed, "served in interrupts") > 100, "{printed}");
        assert!(number(&printed, "served outside") > 500, "{printed}");
        assert_eq!(line(&printed, "end"), "success");
        assert!(number(&printed, "books") >= number(&printed, "books needed"), "{printed}");
    }
}

#[test]
fn without_lock_hooks_the_same_program_fails() {
    let Some(out) = out() else { return };
    assert!(!emulate(out, "m4-unlocked").status.success());
}

#[test]
fn buffers_of_a_block_go_through_an_interrupt_and_back() {
    let Some(out) = out() else { return };
    let printed = printed(out, "m4-complete-dma");
    assert_eq!(number(&printed, "transfers"), 500);
    assert_eq!(line(&printed, "end"), "success");
}

#[test]
fn a_report_is_written_without_an_operating_system() {
    let Some(out) = out() else { return };
    let printed = printed(out, "m4-report");
    let report: serde_json::Value = serde_json::from_str(printed.trim()).expect("the report is JSON");
    assert_eq!(report["allocator"]["slices"], 1);
    assert_eq!(report["allocator"]["in_use_bytes"], 1000);
    assert_eq!(report["pools"][0]["page_size"], 4096);
}

/// Bytes of flash that a program may take, board and startup included.
const TEXT_LIMITS: &[(&str, u64)] = &[
    ("m4-pools", 33_600),
    ("m0-pools", 35_300),
    ("m4-report", 42_700),
    ("m4-complete-pools", 108_500),
    ("m4-complete-dma", 119_500),
];

#[test]
fn programs_keep_to_their_budgets_of_flash() {
    let Some(out) = out() else { return };
    for &(program, limit) in TEXT_LIMITS {
        let [text, data, _] = sizes(out, program);
        assert!(text <= limit, "{program} has {text} bytes of text, above {limit}");
        // One counter: nothing else of the library is kept outside the block.
        assert!(data <= 8, "{program} has {data} bytes of data");
    }
}

#[test]
fn books_keep_to_their_budgets_of_ram() {
    let Some(out) = out() else { return };
    // For 24 slices at a time in four pages, or 8 in one.
    for (program, limit) in [("m4-interrupts", 6_656), ("m0-interrupts", 4_096), ("m4-complete-interrupts", 11_264)] {
        let needed = number(&printed(out, program), "books needed");
        assert!(needed <= limit, "{program}: {needed} bytes of books, above {limit}");
    }
    assert!(number(&printed(out, "m4-complete-dma"), "books") <= 17_000);
}

#[test]
fn stacks_keep_to_their_budgets() {
    let Some(out) = out() else { return };
    // Making an allocator takes the most.
    for (program, limit) in [("m4-interrupts", 9_216), ("m0-interrupts", 9_216), ("m4-complete-interrupts", 24_576)] {
        let used = number(&printed(out, program), "stack");
        assert!((1_024..=limit).contains(&used), "{program}: {used} bytes of stack, above {limit}");
    }
}

#[test]
fn the_library_wants_nothing_of_the_program_but_an_abort() {
    let Some(out) = out() else { return };
    let nothing = out.join("nothing.c");
    fs::write(&nothing, "void start(void);\nvoid start(void) {}\n").expect("the target directory is writable");
    for (build, target, core) in [
        ("m4", TARGETS[0], "-mcpu=cortex-m4"),
        ("m4-complete", TARGETS[0], "-mcpu=cortex-m4"),
        ("m0", TARGETS[1], "-mcpu=cortex-m0"),
    ] {
        // Every function of the header that there is, whatever it calls.
        let archive = out.join(build).join(target).join("release/libslicepool.a");
        let flags =
            ["-mthumb", "-nostdlib", "-nostartfiles", "-Wl,-e,start", "-Wl,-z,noexecstack", "-Wl,--whole-archive"];
        let mut link = Command::new("arm-none-eabi-gcc");
        link.arg(core).args(if target == TARGETS[0] { &["-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"][..] } else { &[] });
        let output = link.args(flags).arg(&nothing).arg(&archive).arg("-o").arg(out.join("nothing.elf")).output();
        let text = String::from_utf8_lossy(&output.expect("the compiler runs").stderr).into_owned();
        let wanted =
            |line: &str| Some(line.split_once("undefined reference to `")?.1.trim_end_matches('\'').to_owned());
        let missing: BTreeSet<_> = text.lines().filter_map(wanted).collect();
        assert_eq!(missing, BTreeSet::from(["abort".to_owned()]), "{build}: {text}");
    }
}

/// The blocks of docs/firmware.md in a language.
fn blocks(language: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/firmware.md")).expect("the file is there");
    let begin = format!("```{language}\n");
    text.split(&begin).skip(1).filter_map(|rest| Some(rest.split_once("\n```")?.0.to_owned() + "\n")).collect()
}

#[test]
fn the_commands_of_the_documentation_work() {
    let Some(out) = out() else { return };
    let blocks = blocks("sh");
    assert_eq!(blocks.len(), 3, "build, link and run, build for M0");
    for (block, build) in blocks.iter().zip(["m4", "m4", "m0"]) {
        // The targets are there, and the library need not be built once more.
        let commands: Vec<_> = block.lines().filter(|line| !line.starts_with("rustup")).collect();
        let built = out.join(build);
        let program = out.join("documentation.elf");
        let commands = commands.join("\n").replace(" target/", &format!(" {}/", built.display()));
        let commands = commands.replace("pools.elf", &program.display().to_string());
        let mut shell = Command::new("sh");
        shell.arg("-ec").arg(&commands).current_dir(root()).env("CARGO_TARGET_DIR", built).env_remove("RUSTFLAGS");
        let output = shell.output().expect("sh runs");
        assert!(output.status.success(), "{commands}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_program_of_the_documentation_works() {
    let Some(out) = out() else { return };
    let blocks: Vec<_> = blocks("c").into_iter().filter(|block| block.contains("int main(")).collect();
    assert_eq!(blocks.len(), 1);
    let (source, program) = (out.join("documentation.c"), out.join("documentation-program.elf"));
    fs::write(&source, &blocks[0]).expect("the target directory is writable");
    let flags = "-std=c11 -Os -mthumb -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16 -ffreestanding -Wall -Wextra -Wpedantic \
        -Wshadow -Wconversion -Werror -nostdlib -nostartfiles -Wl,--gc-sections -Wl,-z,noexecstack -T mps2-an386.ld -I../../include";
    let mut command = Command::new("arm-none-eabi-gcc");
    command.current_dir(root().join("examples-c/firmware")).args(flags.split_whitespace()).arg("-L.").arg(&source);
    command.arg("board.c").arg(out.join("m4").join(TARGETS[0]).join("release/libslicepool.a")).arg("-o").arg(&program);
    let output = command.output().expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = emulate_file("mps2-an386", &program);
    assert_eq!(output.status.code(), Some(0));
}
