//! The report of an allocator is what its schema says, in `docs/report.schema.json`.

use crate::common::devices::LedgerDevice;
use crate::common::json::Json;
use crate::common::pools::{direct, exclusive, growing, sliced};
use crate::common::{G, K, M};
use slicepool_core::{
    Allocator, AllocatorOptions, Device, DeviceError, DeviceLayout, DeviceMemory, Heap, HeapBudget, LiveSlices,
    MemoryChoice, MemoryType, PageRequest, PoolKinds, PoolOptions, Request,
};
use std::collections::BTreeSet;

// ---- a validator for as much of JSON Schema as the schema uses

/// The schema, which people read, without what makes it easy to read.
fn schema() -> Json {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/report.schema.json"));
    let mut in_string = false;
    let dense = text.chars().filter(|&c| {
        in_string ^= c == '"';
        in_string || !c.is_whitespace()
    });
    Json::read(&dense.collect::<String>())
}

struct Validator<'a> {
    root: &'a Json,
    /// Where the parts of the schema lie that a value has had the form of.
    met: BTreeSet<*const Json>,
}

impl<'a> Validator<'a> {
    fn new(root: &'a Json) -> Self {
        Self { root, met: BTreeSet::new() }
    }

    /// Why a value does not have the form that a schema prescribes.
    fn check(&mut self, schema: &'a Json, value: &Json) -> Result<(), String> {
        let Json::Object(rules) = schema else { return Err(format!("{schema:?} is no schema")) };
        for (name, rule) in rules {
            self.check_rule(rules.get("properties"), name, rule, value)?;
        }
        self.met.insert(schema);
        Ok(())
    }

    fn check_rule(
        &mut self,
        properties: Option<&'a Json>,
        name: &str,
        rule: &'a Json,
        value: &Json,
    ) -> Result<(), String> {
        let holds = match (name, rule, value) {
            ("$schema" | "title" | "description" | "$defs", ..) => true,
            ("type", Json::Text(wanted), _) => {
                let kind = match value {
                    Json::Null => "null",
                    Json::Truth(_) => "boolean",
                    Json::Number(_) => "integer",
                    Json::Text(_) => "string",
                    Json::List(_) => "array",
                    Json::Object(_) => "object",
                };
                wanted == kind
            }
            ("const", ..) => rule == value,
            ("enum", Json::List(values), _) => match values.iter().find(|it| *it == value) {
                Some(found) => {
                    self.met.insert(found);
                    true
                }
                None => false,
            },
            ("minimum", Json::Number(least), Json::Number(number)) => number >= least,
            ("items", _, Json::List(elements)) => {
                return elements.iter().try_for_each(|element| self.check(rule, element));
            }
            ("required", Json::List(names), Json::Object(members)) => {
                let has = |name: &Json| matches!(name, Json::Text(name) if members.contains_key(name));
                names.iter().all(has)
            }
            ("properties", Json::Object(known), Json::Object(members)) => {
                for (name, member) in members {
                    if let Some(rule) = known.get(name) {
                        self.check(rule, member).map_err(|why| format!("{name}: {why}"))?;
                    }
                }
                true
            }
            ("additionalProperties", Json::Truth(false), Json::Object(members)) => {
                let Some(Json::Object(known)) = properties else { return Err("no properties".to_owned()) };
                members.keys().all(|name| known.contains_key(name))
            }
            ("oneOf", Json::List(forms), _) => {
                let mut of_form = Vec::new();
                for form in forms {
                    let mut alone = Validator::new(self.root);
                    if alone.check(form, value).is_ok() {
                        of_form.push(alone.met);
                    }
                }
                let one = of_form.len() == 1;
                of_form.into_iter().for_each(|met| self.met.extend(met));
                one
            }
            ("$ref", Json::Text(path), _) => {
                let name = path.strip_prefix("#/$defs/").expect("a definition of the schema's own");
                return self.check(self.root.get("$defs").get(name), value);
            }
            _ => return Err(format!("{name} means nothing here: {rule:?} for {value:?}")),
        };
        if holds { Ok(()) } else { Err(format!("{name} {rule:?} does not hold for {value:?}")) }
    }
}

fn validate(value: &Json) -> Result<(), String> {
    let schema = schema();
    Validator::new(&schema).check(&schema, value)
}

/// Calls `visit` with a schema and all that are part of it.
fn visit_schemas<'a>(schema: &'a Json, visit: &mut dyn FnMut(&'a Json)) {
    let Json::Object(rules) = schema else { panic!("{schema:?} is no schema") };
    visit(schema);
    for (name, rule) in rules {
        match (name.as_str(), rule) {
            ("properties" | "$defs", Json::Object(parts)) => parts.values().for_each(|it| visit_schemas(it, visit)),
            ("items", _) => visit_schemas(rule, visit),
            ("oneOf", Json::List(parts)) => parts.iter().for_each(|it| visit_schemas(it, visit)),
            _ => {}
        }
    }
}

// ---- reports

/// A device that says how much of its first heap is used.
struct Budgeting(LedgerDevice);

impl Device for Budgeting {
    fn allocate(&self, request: &PageRequest) -> Result<DeviceMemory, DeviceError> {
        self.0.allocate(request)
    }

    fn deallocate(&self, memory: &DeviceMemory) -> Result<(), DeviceError> {
        self.0.deallocate(memory)
    }

    fn heap_budget(&self, heap: u32) -> Option<HeapBudget> {
        (heap == 0).then_some(HeapBudget { usage: 5 * M, budget: G })
    }
}

const NAMES: [&str; 5] =
    ["", "of the GPU", "a \"quoted\" \\ name", "with\ttabs\n\u{0}and\u{1f}more", "Größe, 記憶, \u{10ffff}"];

fn report<D: Device>(allocator: &Allocator<D>) -> Json {
    let mut text = String::new();
    allocator.write_json(&mut text).unwrap();
    Json::read(&text)
}

/// Pools of all kinds, with all that can be said of them.
fn pools() -> Vec<PoolOptions> {
    vec![
        sliced(64 * K, 4 * K, Some(M)).with_min_pages(2),
        growing(64 * K, M).with_dealloc_period(Some(7)).with_keep_bytes(3 * K),
        PoolOptions::blocks(4 * M, 64 * M).in_memory_type(1),
        sliced(M, M, None).in_memory_type(1).with_kinds(PoolKinds::Linear),
        sliced(M, M, None).in_memory_type(1).with_kinds(PoolKinds::Optimal),
        exclusive(0),
        exclusive(u64::MAX),
        direct(None),
        direct(Some(M)).in_memory_type(2),
    ]
}

/// Reports of several allocators, at several moments; with slices that have pages of their own, or without.
fn reports(own_pages: bool) -> Vec<Json> {
    let mut reports = Vec::new();
    for name in NAMES {
        let device = LedgerDevice::new();
        let options = AllocatorOptions::default().with_name(name);
        let allocator = Allocator::try_new(&device, &[direct(None)], options).unwrap();
        reports.push(report(&allocator));
    }
    let types = [
        MemoryType::new(u64::MAX, 32).in_heap(0).with_properties(u32::MAX),
        MemoryType::new(128 * M, 64).in_heap(1).with_host_visible(true).with_granularity(K),
        MemoryType::new(64 * M, 256).in_heap(2).with_non_coherent_atom(64),
    ];
    let heaps = [Heap::new(u64::MAX), Heap::new(4 * G).with_limit(Some(G)), Heap::new(2 * G)];
    for dry_run in [false, true] {
        let device = Budgeting(LedgerDevice::new());
        let mut options = AllocatorOptions::default().with_name("several types").with_dedicated_when_too_large();
        if dry_run {
            options = options.with_dry_run();
        }
        let memory = DeviceLayout::new(&types, &heaps);
        let allocator = Allocator::with_memory_types(&device, &memory, &pools(), options).unwrap();
        reports.push(report(&allocator));
        let of_type = |memory_type: u32| Request::new(5000).from_memory(MemoryChoice::of_types(1 << memory_type));
        let mut requests: Vec<_> = (0..3).map(of_type).collect();
        requests.extend([0, 1, 2, 3, 6, 7, 8].map(|pool| Request::new(1000).in_pool(pool)));
        if own_pages {
            let data = std::ptr::without_provenance_mut(1);
            for memory_type in [0, 2] {
                let request = of_type(memory_type);
                requests.extend([request.persistent(), request.dedicated(), request.with_device_data(data)]);
            }
        }
        for request in requests {
            let slices = [(); 3].map(|()| allocator.allocate(&request).unwrap());
            allocator.free(slices[1].id).unwrap();
            let point = slicepool_core::Point { timeline: 1, value: 1 };
            allocator.free_after(slices[2].id, &[point]).unwrap();
        }
        reports.push(report(&allocator));
        device.0.keep_everything(true);
        let _ = allocator.trim(0);
        reports.push(report(&allocator));
        device.0.keep_everything(false);
        allocator.close(LiveSlices::Free).unwrap();
        reports.push(report(&allocator));
    }
    reports
}

// ---- tests

#[test]
fn every_report_has_the_form_that_the_schema_prescribes() {
    for report in reports(false) {
        assert_eq!(validate(&report), Ok(()));
    }
}

#[test]
fn every_report_with_pages_of_slices_own_has_the_form_that_the_schema_prescribes() {
    for report in reports(true) {
        assert_eq!(validate(&report), Ok(()));
    }
}

/// Every alternative of every member, too.
#[test]
fn every_member_that_the_schema_describes_occurs_in_some_report() {
    let schema = schema();
    let mut validator = Validator::new(&schema);
    for report in reports(true) {
        assert_eq!(validator.check(&schema, &report), Ok(()));
    }
    visit_schemas(&schema, &mut |part| {
        let met = |part: &Json| validator.met.contains(&std::ptr::from_ref(part));
        assert!(met(part), "nothing has the form of {part:?}");
        if let Json::Object(rules) = part {
            if let Some(Json::List(values)) = rules.get("enum") {
                values.iter().for_each(|value| assert!(met(value), "{value:?} occurs nowhere"));
            }
        }
    });
}

#[test]
fn every_member_is_described_with_its_unit_and_required_and_no_other_is_allowed() {
    let schema = schema();
    visit_schemas(&schema, &mut |part| {
        let Json::Object(rules) = part else { unreachable!() };
        if rules.get("type") == Some(&Json::Text("object".to_owned())) {
            let Json::Object(properties) = part.get("properties") else { panic!("{part:?}") };
            let names: BTreeSet<_> =
                properties.keys().map(|name| Json::Text(name.clone())).map(|it| format!("{it:?}")).collect();
            let required: BTreeSet<_> = part.list("required").iter().map(|it| format!("{it:?}")).collect();
            assert_eq!((names, part.get("additionalProperties")), (required, &Json::Truth(false)));
            for (name, member) in properties {
                let Json::Object(rules) = member else { panic!("{name}") };
                let described = match rules.get("$ref") {
                    Some(Json::Text(path)) => schema.get("$defs").get(path.strip_prefix("#/$defs/").unwrap()),
                    _ => member,
                };
                let Json::Text(description) = described.get("description") else { panic!("{name}") };
                let form = format!("{described:?}");
                let units = ["Bytes", "Number", "number", "Index"];
                let has_unit = units.iter().any(|unit| description.contains(unit));
                assert!(has_unit || !form.contains("integer"), "{name} in which unit? {description}");
                assert!(!name.ends_with("_bytes") || description.starts_with("Bytes"), "{name}: {description}");
            }
        }
    });
}

/// Every way to change one thing somewhere in a value.
fn changed(value: &Json) -> Vec<(String, Json)> {
    let mut all = Vec::new();
    match value {
        Json::Object(members) => {
            for (name, member) in members {
                let mut with = |what: &str, name: &str, member: Option<Json>| {
                    let mut others = members.clone();
                    others.remove(name);
                    others.extend(member.map(|it| (name.to_owned(), it)));
                    all.push((format!("{name} {what}"), Json::Object(others)));
                };
                with("missing", name, None);
                for (what, member) in changed(member) {
                    with(&what, name, Some(member));
                }
                let mut renamed = members.clone();
                renamed.remove(name);
                renamed.insert(format!("{name}_"), member.clone());
                all.push((format!("{name} renamed"), Json::Object(renamed)));
            }
            let mut more = members.clone();
            more.insert("more".to_owned(), Json::Number(0));
            all.push(("with one member more".to_owned(), Json::Object(more)));
            all.push(("as a list".to_owned(), Json::List(Vec::new())));
        }
        Json::List(elements) => {
            for (i, element) in elements.iter().enumerate() {
                for (what, element) in changed(element) {
                    let mut others = elements.clone();
                    others[i] = element;
                    all.push((format!("{i} {what}"), Json::List(others)));
                }
            }
            all.push(("as an object".to_owned(), Json::Object(Default::default())));
        }
        Json::Number(number) => all.push(("as text".to_owned(), Json::Text(number.to_string()))),
        Json::Text(_) | Json::Truth(_) => all.push(("as a number".to_owned(), Json::Number(1))),
        Json::Null => all.push(("as a truth value".to_owned(), Json::Truth(false))),
    }
    all
}

#[test]
fn a_report_with_anything_missing_renamed_added_or_of_another_type_is_refused() {
    let report = reports(false).remove(NAMES.len() + 1);
    assert_eq!(validate(&report), Ok(()));
    let schema = schema();
    let changes = changed(&report);
    assert!(changes.len() > 1000, "{}", changes.len());
    for (what, changed) in changes {
        let answer = Validator::new(&schema).check(&schema, &changed);
        assert!(answer.is_err(), "{what} makes no difference");
    }
    for (from, to) in [("sliced_pages", "direct"), ("share", "shares"), ("linear", "lineal")] {
        let mut text = String::new();
        write(&report, &mut text);
        let other = text.replacen(&format!("\"{from}\""), &format!("\"{to}\""), 1);
        assert_ne!(text, other);
        assert!(validate(&Json::read(&other)).is_err(), "{to} for {from}");
    }
}

/// Writes what [`Json::read`] reads.
fn write(value: &Json, out: &mut String) {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    match value {
        Json::Null => out.push_str("null"),
        Json::Truth(truth) => out.push_str(&truth.to_string()),
        Json::Number(number) => out.push_str(&number.to_string()),
        Json::Text(text) => out.push_str(&quoted(text)),
        Json::List(elements) => {
            out.push('[');
            for (i, element) in elements.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                write(element, out);
            }
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            for (i, (name, member)) in members.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { "," });
                out.push_str(&quoted(name));
                out.push(':');
                write(member, out);
            }
            out.push('}');
        }
    }
}

/// What no string of JSON may hold becomes a space.
#[test]
fn the_name_of_the_allocator_is_in_the_report_whatever_is_in_it() {
    for (report, name) in reports(false).iter().zip(NAMES) {
        let shown: String = name.chars().map(|c| if c < ' ' { ' ' } else { c }).collect();
        assert_eq!(report.get("name"), &Json::Text(shown));
    }
}
