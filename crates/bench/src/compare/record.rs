//! What a comparison found, as it is kept beside the report.

use super::cases::Case;
use super::pairing::Metric;
use super::workloads::Workload;
use crate::machine::Machine;
use crate::report::Run;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer, Serialize};

/// Everything that was measured, and with what.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) commit: String,
    pub(crate) parts: Vec<Part>,
    /// Small numbers, which mean nothing.
    pub(crate) is_trial: bool,
    /// Turns of each case.
    pub(crate) pairs: usize,
    /// This server first.
    pub(crate) contenders: Vec<ContenderRecord>,
    /// Systems that are not installed.
    pub(crate) skipped: Vec<String>,
    pub(crate) cases: Vec<CaseRecord>,
}

/// What one call of this program measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) date: String,
    pub(crate) machine: Machine,
    /// Processes that wanted a core, on average of a minute, before the first run.
    pub(crate) load: f64,
    /// Arguments of this program.
    pub(crate) command: String,
}

/// A system that took part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContenderRecord {
    pub(crate) key: String,
    pub(crate) label: String,
    pub(crate) durability: String,
    /// Release and settings, as its first run reported.
    pub(crate) server: String,
    /// It stores nothing, and shows what the workload costs at least.
    pub(crate) is_yardstick: bool,
}

/// One case with all its runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CaseRecord {
    #[serde(serialize_with = "key_of", deserialize_with = "of_key")]
    pub(crate) workload: Workload,
    pub(crate) name: String,
    /// Where its part is in [`Comparison::parts`].
    pub(crate) part: usize,
    /// For each turn the attempts of all contenders, in their order.
    pub(crate) turns: Vec<Vec<Attempt>>,
}

/// One run, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) contender: String,
    pub(crate) run: Option<Run>,
    pub(crate) failure: Option<String>,
}

fn key_of<S: serde::Serializer>(workload: &Workload, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&workload.key())
}

fn of_key<'de, D: Deserializer<'de>>(key: D) -> Result<Workload, D::Error> {
    let key = String::deserialize(key)?;
    Workload::from_str(&key, false).map_err(serde::de::Error::custom)
}

impl Comparison {
    /// One of several, whose cases come together. Of a case that more than one has, the last one counts.
    /// Workloads may be of different machines, the cases of a workload may not.
    ///
    /// # Errors
    /// What keeps them apart, if their figures cannot be compared.
    pub(crate) fn join(comparisons: Vec<Self>) -> Result<Self, String> {
        let mut comparisons = comparisons.into_iter();
        let mut all = comparisons.next().ok_or("there are no figures")?;
        for other in comparisons {
            if other.commit != all.commit {
                return Err(format!(
                    "they are of two commits, {} and {}",
                    all.commit, other.commit
                ));
            }
            if (other.pairs, other.is_trial) != (all.pairs, all.is_trial) {
                return Err(format!(
                    "cases of {} and of {} turns, or trials",
                    all.pairs, other.pairs
                ));
            }
            all.take(other);
        }
        let contenders = &all.contenders;
        all.skipped.retain(|label| contenders.iter().all(|one| one.label != *label));
        // Cases of a workload keep their order.
        all.cases.sort_by_key(|case| case.workload as u8);
        all.check_machines()?;
        Ok(all)
    }

    fn take(&mut self, other: Self) {
        for contender in other.contenders {
            match self.contenders.iter_mut().find(|known| known.key == contender.key) {
                Some(known) if known.server.is_empty() => *known = contender,
                Some(_) => {}
                None => self.contenders.push(contender),
            }
        }
        let is_of = |case: &CaseRecord| (case.workload, case.name.clone());
        let newer: Vec<_> = other.cases.iter().map(is_of).collect();
        self.cases.retain(|case| !newer.contains(&is_of(case)));
        let before = self.parts.len();
        let cases = other.cases.into_iter();
        self.cases.extend(cases.map(|case| CaseRecord { part: before + case.part, ..case }));
        self.parts.extend(other.parts);
        for label in other.skipped {
            if !self.skipped.contains(&label) {
                self.skipped.push(label);
            }
        }
    }

    /// Cases of one workload are next to each other.
    fn check_machines(&self) -> Result<(), String> {
        let neighbours = self.cases.windows(2);
        for two in neighbours.filter(|two| two[0].workload == two[1].workload) {
            let (one, other) = (self.machine_of(&two[0]), self.machine_of(&two[1]));
            if !one.is_like(other) {
                let (key, one, other) = (two[0].workload.key(), one.line(), other.line());
                return Err(format!("cases of {key} are of two machines, {one} and {other}"));
            }
        }
        Ok(())
    }

    /// The parts that cases are of.
    pub(crate) fn used_parts(&self) -> impl Iterator<Item = (usize, &Part)> {
        let is_used = |at: usize| self.cases.iter().any(|case| case.part == at);
        self.parts.iter().enumerate().filter(move |(at, _)| is_used(*at))
    }

    /// When and where each workload was measured, as a list.
    pub(crate) fn occasions(&self) -> String {
        let line = |(at, part): (usize, &Part)| {
            let cases = self.cases.iter().filter(|case| case.part == at);
            let mut titles: Vec<&str> = cases.map(|case| case.workload.title()).collect();
            titles.dedup();
            format!("- {}, {}: {}\n", part.date, part.machine.line(), titles.join(", "))
        };
        self.used_parts().map(line).collect()
    }

    /// On what a case was measured.
    pub(crate) fn machine_of(&self, case: &CaseRecord) -> &Machine {
        &self.parts[case.part].machine
    }

    /// Takes from the first runs how each system was started.
    pub(crate) fn note_servers(&mut self, record: &CaseRecord) {
        for contender in self.contenders.iter_mut().filter(|known| known.server.is_empty()) {
            let attempts = record.turns.iter().flatten();
            let own = attempts.filter(|attempt| attempt.contender == contender.key);
            if let Some(run) = own.filter_map(|attempt| attempt.run.as_ref()).next() {
                contender.server.clone_from(&run.server);
            }
        }
    }

    /// Every run of this server was made and passed its checks.
    pub(crate) fn ours_passed(&self) -> bool {
        let ours = self.contenders.first().map(|contender| contender.key.as_str());
        let attempts = self.cases.iter().flat_map(|case| case.turns.iter().flatten());
        let mut own = attempts.filter(|attempt| Some(attempt.contender.as_str()) == ours);
        own.all(|attempt| attempt.counted().is_some())
    }

    /// This server, and the systems that it is measured against: a yardstick is none.
    pub(crate) fn rivals(
        &self,
    ) -> Option<(&ContenderRecord, impl Iterator<Item = &ContenderRecord> + Clone)> {
        let (own, others) = self.contenders.split_first()?;
        Some((own, others.iter().filter(|other| !other.is_yardstick)))
    }

    /// The workloads that were run, in order.
    pub(crate) fn workloads(&self) -> Vec<Workload> {
        let mut workloads: Vec<Workload> = self.cases.iter().map(|case| case.workload).collect();
        workloads.dedup();
        workloads
    }
}

impl CaseRecord {
    pub(crate) fn new(case: &Case) -> Self {
        Self { workload: case.workload, name: case.name.clone(), part: 0, turns: Vec::new() }
    }

    /// What the runs of `contender` that count found of `metric`.
    pub(crate) fn values(&self, contender: &str, metric: &Metric) -> Vec<f64> {
        self.turns.iter().filter_map(|turn| value(turn, contender, metric)).collect()
    }

    /// The same of two contenders, turn by turn, where both count.
    pub(crate) fn pairs(&self, ours: &str, theirs: &str, metric: &Metric) -> Vec<(f64, f64)> {
        let pair = |turn: &Vec<Attempt>| value(turn, ours, metric).zip(value(turn, theirs, metric));
        self.turns.iter().filter_map(pair).collect()
    }

    /// Whether `contender` takes part.
    pub(crate) fn has(&self, contender: &str) -> bool {
        self.turns.iter().flatten().any(|attempt| attempt.contender == contender)
    }

    /// Why `contender` could not run this case, if it could not.
    pub(crate) fn failure_of(&self, contender: &str) -> Option<String> {
        let mut attempts = self.turns.iter().flatten();
        let own = attempts.find(|a| a.contender == contender && a.failure.is_some())?;
        own.failure.clone()
    }

    /// How the case is run by itself.
    pub(crate) fn command(&self) -> Option<String> {
        let run = self.turns.iter().flatten().find_map(|attempt| attempt.run.as_ref())?;
        let own = run.settings.iter().filter(|(name, _)| name != "against");
        let flags = own.fold(String::new(), |text, (name, value)| match value.as_str() {
            "true" => format!("{text} --{name}"),
            "false" => text,
            _ => format!("{text} --{name} {value}"),
        });
        Some(format!("{}{flags}", run.command))
    }
}

fn value(turn: &[Attempt], contender: &str, metric: &Metric) -> Option<f64> {
    let attempt = turn.iter().find(|attempt| attempt.contender == contender)?;
    attempt.counted()?.value(metric.figure).map(|figure| figure.value)
}

impl Attempt {
    pub(crate) fn failed(contender: &str, failure: String) -> Self {
        Self { contender: contender.to_owned(), run: None, failure: Some(failure) }
    }

    /// The run, if all its checks passed.
    pub(crate) fn counted(&self) -> Option<&Run> {
        self.run.as_ref().filter(|run| run.passed())
    }

    /// Why it does not count.
    pub(crate) fn problem(&self) -> Option<String> {
        if let Some(failure) = &self.failure {
            return Some(failure.lines().next().unwrap_or_default().to_owned());
        }
        let checks = &self.run.as_ref()?.checks;
        let failed = checks.iter().filter(|check| !check.passed).map(|check| check.what.as_str());
        let failed: Vec<&str> = failed.collect();
        (!failed.is_empty()).then(|| failed.join("; "))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two contenders with the given rates, turn by turn.
    pub(in crate::compare) fn comparison(rates: &[(f64, f64)]) -> Comparison {
        let contender = |key: &str, label: &str, durability: &str| ContenderRecord {
            key: key.to_owned(),
            label: label.to_owned(),
            durability: durability.to_owned(),
            server: String::new(),
            is_yardstick: false,
        };
        let attempt = |key: &str, rate: f64| {
            let mut run = Run::new("appends");
            run.server = format!("{key} 1 --flag");
            run.setting("streams", 7);
            run.figure("appends per second", rate, "1/s");
            Attempt { contender: key.to_owned(), run: Some(run), failure: None }
        };
        let turns = rates
            .iter()
            .map(|(ours, theirs)| vec![attempt("ours", *ours), attempt("theirs", *theirs)]);
        let record = CaseRecord {
            workload: Workload::Writes,
            name: "7 streams".to_owned(),
            part: 0,
            turns: turns.collect(),
        };
        let mut comparison = Comparison {
            commit: "abc".to_owned(),
            parts: vec![Part {
                date: "2026-01-02".to_owned(),
                machine: Machine::default(),
                load: 0.5,
                command: format!("compare --pairs {}", rates.len()),
            }],
            is_trial: false,
            pairs: rates.len(),
            contenders: vec![
                contender("ours", "Ours", "fdatasync before it"),
                contender("theirs", "Theirs", "page cache: nothing"),
            ],
            skipped: vec!["Absent".to_owned()],
            cases: Vec::new(),
        };
        comparison.note_servers(&record);
        comparison.cases.push(record);
        comparison
    }

    #[test]
    fn runs_that_failed_a_check_do_not_count() {
        let mut comparison = comparison(&[(1.0, 2.0), (3.0, 4.0)]);
        let metric = &Workload::Writes.metrics()[0];
        let pairs = |comparison: &Comparison| comparison.cases[0].pairs("ours", "theirs", metric);
        assert_eq!(pairs(&comparison), [(1.0, 2.0), (3.0, 4.0)]);
        let run = comparison.cases[0].turns[0][0].run.as_mut().unwrap();
        run.check("all was read back", false);
        assert_eq!(pairs(&comparison), [(3.0, 4.0)]);
        assert!(!comparison.ours_passed());
    }

    #[test]
    fn a_failure_says_its_first_line() {
        let attempt = Attempt::failed("theirs", "it ended\nits log".to_owned());
        assert_eq!(attempt.problem().as_deref(), Some("it ended"));
        assert!(attempt.counted().is_none());
        let mut comparison = comparison(&[(1.0, 2.0)]);
        comparison.cases[0].turns[0][1] = attempt;
        let case = &comparison.cases[0];
        assert_eq!(case.failure_of("theirs").as_deref(), Some("it ended\nits log"));
        assert_eq!(case.failure_of("ours"), None);
    }

    fn with(name: &str, rates: &[(f64, f64)]) -> Comparison {
        let mut comparison = comparison(rates);
        comparison.cases[0].name = name.to_owned();
        // As it is kept.
        serde_json::from_value(serde_json::to_value(comparison).unwrap()).unwrap()
    }

    #[test]
    fn parts_of_a_comparison_come_together() {
        let rates = [(1.0, 2.0)];
        let mut third = with("9 streams", &rates);
        third.contenders.remove(1);
        third.cases[0].workload = Workload::Mixed;
        third.skipped.push("Gone".to_owned());
        let mut second = with("8 streams", &rates);
        second.skipped.clone_from(&third.skipped);
        let parts = vec![third, second, with("8 streams", &[(5.0, 2.0)])];
        let all = Comparison::join(parts).unwrap();
        let cases: Vec<_> =
            all.cases.iter().map(|case| (case.workload, case.name.as_str())).collect();
        assert_eq!(cases, [(Workload::Writes, "8 streams"), (Workload::Mixed, "9 streams")]);
        assert_eq!(all.cases[0].values("ours", &Workload::Writes.metrics()[0]), [5.0]);
        let keys: Vec<&str> = all.contenders.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["ours", "theirs"]);
        assert_eq!(all.skipped, ["Absent", "Gone"], "each once");
    }

    #[test]
    fn parts_that_cannot_be_compared_are_refused() {
        let (mut other, rates) = (with("a", &[(1.0, 2.0)]), [(1.0, 2.0)]);
        other.commit = "def".to_owned();
        let said = Comparison::join(vec![with("b", &rates), other]).unwrap_err();
        assert_eq!(said, "they are of two commits, abc and def");
        let two = with("c", &[(1.0, 2.0), (1.0, 2.0)]);
        assert!(Comparison::join(vec![with("b", &rates), two]).is_err());
    }

    #[test]
    fn a_workload_is_of_one_machine() {
        let rates = [(1.0, 2.0)];
        let elsewhere = |name: &str, workload| {
            let mut comparison = with(name, &rates);
            comparison.parts[0].machine.cores = 64;
            comparison.cases[0].workload = workload;
            comparison
        };
        let other = elsewhere("8 streams", Workload::Writes);
        let said = Comparison::join(vec![with("9 streams", &rates), other]).unwrap_err();
        assert!(said.starts_with("cases of writes are of two machines, 0 × "), "{said}");

        let other = elsewhere("8 streams", Workload::Mixed);
        let all = Comparison::join(vec![with("9 streams", &rates), other]).unwrap();
        let said = all.occasions();
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("- 2026-01-02, 0 × "), "{said}");
        assert!(lines[0].ends_with(": Writes to many streams"), "{said}");
        assert!(lines[1].starts_with("- 2026-01-02, 64 × "), "{said}");
        assert!(lines[1].ends_with(": Everything at once"), "{said}");
    }

    #[test]
    fn the_figures_are_kept_whole() {
        let json = serde_json::to_value(comparison(&[(1.0, 2.0)])).unwrap();
        let run = &json["cases"][0]["turns"][0][1]["run"];
        assert_eq!(run["figures"][0]["value"], 2.0);
        assert_eq!(json["cases"][0]["workload"], "writes");
        assert_eq!(json["contenders"][0]["server"], "ours 1 --flag");
    }
}
