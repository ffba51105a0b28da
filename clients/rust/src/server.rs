use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::agent::{Agent, Phase, Seat, SeatState};
use crate::frame::{pad, write_numbers, Frame};
use crate::game::{Episode, Game, Start};
use crate::json::{quoted, Json};
use crate::link::{begin, Link, ACT, CLOSE, ERROR, HELLO, READY, RESET, START, STEP};
use crate::obs::Obs;
use crate::schema::Schema;
use crate::settings::Settings;

const MAX_BYTES: u64 = 256 << 20;
const MAX_JSON_BYTES: u64 = 1 << 20;
const MAX_ROWS: usize = MAX_BYTES as usize / 16;
const MAX_TEXT: usize = 10_000;

const STARTED: u8 = 1;
const WAITS: u8 = 2;
const TERMINATED: i64 = 1;
const TRUNCATED: i64 = 2;
const FAILED: i64 = 4;
const IS_NEW: i64 = 8;

impl<S: Settings> Game<S> {
    /// Plays copies of the game until the host closes the connection. After an invalid message,
    /// ends the program with its reason.
    pub fn serve(self) {
        let link = Link::connect().unwrap_or_else(|problem| exit(&problem));
        if let Err(problem) = Server::new(link).serve(self) {
            exit(&problem);
        }
    }
}

fn exit(problem: &str) -> ! {
    eprintln!("entity_env: {problem}");
    process::exit(1);
}

// ------------------------------------------------------------------ panics of games

thread_local! {
    static IS_IN_GAME: Cell<bool> = const { Cell::new(false) };
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

struct Failure {
    message: String,
    traceback: String,
}

/// Notes where games panic, instead of printing it.
fn note_panics() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !IS_IN_GAME.get() {
            return previous(info);
        }
        let mut text = match info.location() {
            Some(location) => format!("panicked at {location}"),
            None => String::new(),
        };
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            text += &format!("\n{trace}");
        }
        PANICKED_AT.set(text);
    }));
}

/// Runs code of a game.
fn catch<T>(call: impl FnOnce() -> T) -> Result<T, Failure> {
    IS_IN_GAME.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    IS_IN_GAME.set(false);
    result.map_err(|panicked| Failure {
        message: text_of(panicked.as_ref()).chars().take(MAX_TEXT).collect(),
        traceback: PANICKED_AT.take().chars().take(MAX_TEXT).collect(),
    })
}

fn text_of(panicked: &(dyn Any + Send)) -> &str {
    match (panicked.downcast_ref::<&str>(), panicked.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "the game panicked with a value that is not a text",
    }
}

// ------------------------------------------------------------------ copies of a game

/// What all copies share.
struct Rules {
    schema: Rc<Schema>,
    start: Start,
    hold: bool,
}

#[derive(Default)]
struct Copy {
    /// The call of `play`; `None` between two episodes.
    episode: Option<Episode>,
    seats: Vec<Rc<Seat>>,
    flags: u8,
    first_row: usize,
}

/// All copies of the game.
#[derive(Default)]
struct Copies {
    all: Vec<Copy>,
    /// By copy and action, bytes of the answers that it waits for.
    wanted: Vec<usize>,
}

impl Copy {
    fn begin_step(&mut self, first_row: usize) {
        self.flags = 0;
        self.first_row = first_row;
    }

    /// Drops the call of `play`, whose destructors may panic.
    fn leave(&mut self) {
        let episode = self.episode.take();
        let _ = catch(|| drop(episode));
    }

    fn start(&mut self, rules: &Rules, seed: u64, answer: &mut Answer) {
        self.flags |= STARTED;
        self.seats.resize_with(rules.schema.num_agents, || Seat::new(rules.schema.clone()));
        for seat in &mut self.seats {
            // A game may have kept an agent of the last episode.
            match Rc::get_mut(seat) {
                Some(seat) => seat.state.get_mut().clear(),
                None => *seat = Seat::new(rules.schema.clone()),
            }
        }
        let mut seats = self.seats.iter();
        let mut next = || Agent { seat: seats.next().expect("one for each agent").clone() };
        match catch(|| (rules.start)(&mut next, seed)) {
            Ok(episode) => {
                self.episode = Some(episode);
                self.run(true, answer);
            }
            Err(failure) => self.fail(failure, true, answer),
        }
    }

    /// Gives the agents that wait their answers, from the bytes of each action.
    fn read_answers(&mut self, actions: &mut [&[u8]]) -> Result<(), String> {
        for seat in &self.seats {
            let state = &mut *seat.state.borrow_mut();
            if state.phase != Phase::Waits || state.obs.is_some() {
                continue;
            }
            for (i, asked) in state.asked.iter().enumerate() {
                let left = &mut actions[asked.action];
                let Some((own, rest)) = left.split_at_checked(asked.num_bytes()) else {
                    return Err("ACT: too few actions".to_string());
                };
                *left = rest;
                let first = asked.first_answer;
                let end = first + asked.num_answers();
                if asked.is_continuous {
                    state.numbers.resize(end.max(state.numbers.len()), 0.0);
                    read_numbers(own, &mut state.numbers[first..end])?;
                } else {
                    state.choices.resize(end.max(state.choices.len()), 0);
                    // The action on which the mask depends is the one asked before.
                    let before = state.asked[i.saturating_sub(1)].first_answer;
                    let (earlier, choices) = state.choices.split_at_mut(first);
                    let mask = asked.mask.clone().map(|mask| Mask {
                        flags: &state.flags[mask],
                        num_rows: asked.num_rows,
                        before: earlier.get(before..).unwrap_or_default(),
                    });
                    read_choices(own, &mut choices[..end - first], asked.width, mask)?;
                }
            }
            state.phase = Phase::Answered;
        }
        Ok(())
    }

    /// Continues the episode with the answers of its agents.
    fn proceed(&mut self, rules: &Rules, seed: u64, answer: &mut Answer) {
        if self.episode.is_some() {
            self.run(false, answer);
            if self.episode.is_some() || rules.hold {
                return;
            }
        }
        self.start(rules, seed, answer);
    }

    /// Runs `play` until agents wait, or to its end.
    fn run(&mut self, is_new: bool, answer: &mut Answer) {
        let Some(episode) = &mut self.episode else {
            return;
        };
        let mut context = Context::from_waker(Waker::noop());
        let polled = catch(|| episode.as_mut().poll(&mut context));
        let problem = match polled {
            Ok(Poll::Pending) if self.any(|seat| seat.phase == Phase::Waits) => None,
            Ok(Poll::Pending) => Some("play awaits something that is not an answer of Agent::act"),
            Ok(Poll::Ready(())) => {
                self.leave();
                let forgets = self.any(|seat| seat.is_playing);
                let text = "play returned, but an agent has not ended its episode: call game_over";
                forgets.then_some(text)
            }
            Err(failure) => return self.fail(failure, is_new, answer),
        };
        match problem {
            None => self.add_ends(is_new, answer),
            Some(text) => {
                let failure = Failure { message: text.to_string(), traceback: String::new() };
                self.fail(failure, is_new, answer)
            }
        }
    }

    fn any(&self, is_so: impl Fn(&SeatState) -> bool) -> bool {
        self.seats.iter().any(|seat| is_so(&seat.state.borrow()))
    }

    fn add_ends(&mut self, is_new: bool, answer: &mut Answer) {
        for (i, seat) in self.seats.iter().enumerate() {
            if let Some((obs, is_truncated)) = seat.state.borrow_mut().end.take() {
                let flags = if is_truncated { TRUNCATED } else { TERMINATED };
                answer.end(self.first_row + i, flags, is_new, Some(obs));
            }
        }
    }

    /// Ends the episode with a failure of all agents that have not ended it.
    fn fail(&mut self, failure: Failure, is_new: bool, answer: &mut Answer) {
        self.leave();
        self.add_ends(is_new, answer);
        let mut is_reported = false;
        for (i, seat) in self.seats.iter().enumerate() {
            let state = &mut *seat.state.borrow_mut();
            state.phase = Phase::Idle;
            state.obs = None;
            if !state.has_ended {
                answer.end(self.first_row + i, FAILED, is_new, None);
                answer.failures.push(format!(
                    "{{\"row\": {}, \"message\": {}, \"traceback\": {}}}",
                    self.first_row + i,
                    quoted(&failure.message),
                    quoted(&failure.traceback)
                ));
                is_reported = true;
            }
        }
        if !is_reported {
            eprintln!("entity_env: {} {}", failure.message, failure.traceback);
        }
    }
}

// ------------------------------------------------------------------ answers to the host

struct End {
    row: usize,
    flags: i64,
    obs: Option<Obs>,
}

/// A STEP message, part by part.
struct Answer {
    schema: Rc<Schema>,
    copies: Vec<u8>,
    asks: Vec<u8>,
    scores: Vec<f64>,
    /// Metric by metric.
    metrics: Vec<Vec<f64>>,
    rows: Frame,
    ends: Vec<End>,
    last: Frame,
    failures: Vec<String>,
}

impl Answer {
    fn new(schema: Rc<Schema>) -> Answer {
        Answer {
            copies: Vec::new(),
            asks: Vec::new(),
            scores: Vec::new(),
            metrics: vec![Vec::new(); schema.metrics.len()],
            rows: Frame::new(&schema),
            ends: Vec::new(),
            last: Frame::new(&schema),
            failures: Vec::new(),
            schema,
        }
    }

    fn clear(&mut self) {
        self.copies.clear();
        self.asks.clear();
        self.scores.clear();
        self.metrics.iter_mut().for_each(Vec::clear);
        self.rows.clear();
        self.ends.clear();
        self.last.clear();
        self.failures.clear();
    }

    fn end(&mut self, row: usize, flags: i64, is_new: bool, obs: Option<Obs>) {
        let flags = flags + if is_new { IS_NEW } else { 0 };
        self.ends.push(End { row, flags, obs });
    }

    /// Adds the rows of a copy, and notes how many bytes it waits for.
    fn add_copy(&mut self, copy: &Copy, wanted: &mut [usize]) {
        wanted.fill(0);
        let waits = if copy.episode.is_none() { WAITS } else { 0 };
        self.copies.push(copy.flags + waits);
        for seat in &copy.seats {
            let state = &mut *seat.state.borrow_mut();
            let obs = state.obs.as_ref();
            self.asks.push(u8::from(obs.is_some()));
            self.scores.push(obs.map_or(0.0, Obs::score));
            for (metric, name) in self.metrics.iter_mut().zip(&self.schema.metrics) {
                metric.push(obs.map_or(f64::NAN, |obs| obs.metric_of(name)));
            }
            self.rows.add(&self.schema, obs);
            for asked in obs.map_or(&[][..], Obs::all_asked) {
                wanted[asked.action] += asked.num_bytes();
            }
            if let Some(obs) = state.obs.take() {
                obs.give(&mut state.asked, &mut state.flags);
            }
        }
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        // Two ends of a row keep their order.
        self.ends.sort_by_key(|end| end.row);
        let mut text = Vec::new();
        if !self.failures.is_empty() {
            text = format!("[{}]", self.failures.join(", ")).into_bytes();
            pad(&mut text, b' ');
        }
        begin(out);
        out.extend_from_slice(&(self.ends.len() as u64).to_le_bytes());
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        for bytes in [&self.copies, &self.asks] {
            out.extend_from_slice(bytes);
            pad(out, 0);
        }
        for numbers in [&self.scores].into_iter().chain(&self.metrics) {
            write_numbers(out, numbers.iter().map(|number| number.to_le_bytes()));
        }
        self.rows.write(&self.schema, out);
        if !self.ends.is_empty() {
            self.write_ends(out);
        }
        out.extend_from_slice(&text);
    }

    fn write_ends(&mut self, out: &mut Vec<u8>) {
        let ends = || self.ends.iter();
        write_numbers(out, ends().map(|end| (end.row as i64).to_le_bytes()));
        write_numbers(out, ends().map(|end| end.flags.to_le_bytes()));
        let scores = ends().map(|end| end.obs.as_ref().map_or(0.0, Obs::score));
        write_numbers(out, scores.map(|score| score.to_le_bytes()));
        for name in &self.schema.metrics {
            let value = |end: &End| end.obs.as_ref().map_or(f64::NAN, |obs| obs.metric_of(name));
            write_numbers(out, ends().map(|end| value(end).to_le_bytes()));
        }
        for end in &self.ends {
            self.last.add(&self.schema, end.obs.as_ref());
        }
        self.last.write(&self.schema, out);
    }
}

// ------------------------------------------------------------------ requests

/// Plays copies of a game for a host.
pub struct Server {
    link: Link,
    payload: Vec<u8>,
    out: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

impl Server {
    pub fn new(link: Link) -> Server {
        Server { link, payload: Vec::new(), out: Vec::new() }
    }

    /// Serves until the end of the connection. An error has been sent to the host.
    pub fn serve<S: Settings>(&mut self, game: Game<S>) -> Result<(), String> {
        note_panics();
        let result = self.converse(game);
        if let Err(problem) = &result {
            self.send_json(ERROR, &format!("{{\"message\": {}}}", quoted(problem)));
        }
        result
    }

    fn converse<S: Settings>(&mut self, game: Game<S>) -> Result<(), String> {
        let token = env::var("ENTITY_ENV_TOKEN").unwrap_or_default();
        self.send_json(HELLO, &game.hello(&token));
        match self.link.receive(&mut self.payload, MAX_JSON_BYTES)? {
            START => (),
            CLOSE => return Ok(()),
            kind => return Err(not_due(kind)),
        }
        let schema = Rc::new(game.schema()?);
        let json = Json::parse(&self.payload).ok_or("START: the payload is not JSON in UTF-8")?;
        let (num_envs, hold) = read_start(&json, schema.num_agents)?;
        let mut settings = S::default();
        if let Some(given) = json.get("settings") {
            settings.update(given).map_err(|problem| format!("START: {problem}"))?;
        }
        let start = game.starter(settings)?;
        self.send_json(READY, &schema.ready());
        self.step(num_envs, &Rules { schema, start, hold })
    }

    fn send_json(&mut self, kind: u32, json: &str) {
        begin(&mut self.out);
        self.out.extend_from_slice(json.as_bytes());
        pad(&mut self.out, b' ');
        // If the host is gone, the next message is the end of the connection.
        let _ = self.link.send(kind, &mut self.out);
    }

    /// Answers all requests.
    fn step(&mut self, num_envs: usize, rules: &Rules) -> Result<(), String> {
        let mut copies = Copies::default();
        let mut answer = Answer::new(rules.schema.clone());
        loop {
            let kind = self.link.receive(&mut self.payload, MAX_BYTES)?;
            answer.clear();
            match kind {
                CLOSE => break,
                RESET => reset(&self.payload, num_envs, &mut copies, rules, &mut answer)?,
                ACT if !copies.all.is_empty() => {
                    act(&self.payload, &mut copies, rules, &mut answer)?
                }
                kind => return Err(not_due(kind)),
            }
            answer.write(&mut self.out);
            if self.link.send(STEP, &mut self.out).is_err() {
                break;
            }
        }
        copies.all.iter_mut().for_each(Copy::leave);
        Ok(())
    }
}

fn not_due(kind: u32) -> String {
    format!("a message of kind {kind} is not due now")
}

/// Number of copies, and whether they are held after an episode.
fn read_start(json: &Json, num_agents: usize) -> Result<(usize, bool), String> {
    let integer = |key| json.get(key).and_then(Json::integer);
    if integer("protocol") != Some(1) {
        return Err("START: the version of the protocol must be 1".to_string());
    }
    let most = MAX_ROWS / num_agents.max(1);
    let num_envs = integer("num_envs").and_then(|count| usize::try_from(count).ok());
    let num_envs = num_envs
        .filter(|count| (1..=most).contains(count))
        .ok_or_else(|| format!("START: num_envs must be an integer from 1 to {most}"))?;
    match json.get("hold").map_or(Some(false), Json::bool) {
        Some(hold) => Ok((num_envs, hold)),
        None => Err("START: hold must be true or false".to_string()),
    }
}

fn reset(
    payload: &[u8],
    num_envs: usize,
    copies: &mut Copies,
    rules: &Rules,
    answer: &mut Answer,
) -> Result<(), String> {
    let count = if payload.len() < 8 { 0 } else { word(payload, 0) };
    if count == 0 || count > num_envs as u64 || payload.len() as u64 != 8 + 16 * count {
        return Err("RESET: the size does not match the number of copies".to_string());
    }
    let count = count as usize;
    let num_actions = rules.schema.actions.len();
    if copies.all.is_empty() {
        // Only now, because the host has sent as much as the copies need.
        if count != num_envs {
            return Err("RESET: the first one must be of all copies".to_string());
        }
        copies.all.resize_with(num_envs, Copy::default);
        copies.wanted.resize(num_envs * num_actions, 0);
    }
    let ids = payload[8..].chunks_exact(8).take(count).map(|bytes| word(bytes, 0));
    if !ids.clone().all(|id| id < num_envs as u64) || !ids.clone().is_sorted_by(|a, b| a < b) {
        return Err("RESET: the numbers of copies must exist and increase".to_string());
    }
    for (i, id) in ids.enumerate() {
        let copy = &mut copies.all[id as usize];
        copy.begin_step(i * rules.schema.num_agents);
        copy.leave();
        copy.start(rules, word(payload, 8 * (1 + count + i)), answer);
        answer.add_copy(copy, &mut copies.wanted[id as usize * num_actions..][..num_actions]);
    }
    Ok(())
}

fn act(
    payload: &[u8],
    copies: &mut Copies,
    rules: &Rules,
    answer: &mut Answer,
) -> Result<(), String> {
    let num_actions = rules.schema.actions.len();
    let Some((seeds, mut rest)) = payload.split_at_checked(8 * copies.all.len()) else {
        return Err("ACT: too few seeds".to_string());
    };
    let mut actions = Vec::with_capacity(num_actions);
    for i in 0..num_actions {
        let size: usize = copies.wanted[i..].iter().step_by(num_actions).sum();
        let Some((own, others)) = rest.split_at_checked(size.next_multiple_of(8)) else {
            return Err("ACT: too few actions".to_string());
        };
        actions.push(own);
        rest = others;
    }
    if !rest.is_empty() {
        return Err("ACT: the size does not match the actors that wait".to_string());
    }
    let copies = copies.all.iter_mut().zip(copies.wanted.chunks_exact_mut(num_actions));
    for (i, (copy, wanted)) in copies.enumerate() {
        copy.read_answers(&mut actions)?;
        copy.begin_step(i * rules.schema.num_agents);
        copy.proceed(rules, word(seeds, 8 * i), answer);
        answer.add_copy(copy, wanted);
    }
    Ok(())
}

fn read_numbers(bytes: &[u8], numbers: &mut [f32]) -> Result<(), String> {
    for (bytes, number) in bytes.chunks_exact(4).zip(numbers) {
        *number = f32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[i]));
        if !number.is_finite() {
            return Err("ACT: a number is not finite".to_string());
        }
    }
    Ok(())
}

/// The flags of actors; with several rows, `before` has the choice that tells the row.
struct Mask<'a> {
    flags: &'a [u8],
    num_rows: usize,
    before: &'a [i64],
}

impl Mask<'_> {
    fn forbids(&self, actor: usize, width: usize, choice: usize) -> bool {
        let row = if self.num_rows == 1 { 0 } else { self.before[actor] as usize };
        self.flags[(actor * self.num_rows + row) * width + choice] == 0
    }
}

fn read_choices(
    bytes: &[u8],
    choices: &mut [i64],
    width: usize,
    mask: Option<Mask>,
) -> Result<(), String> {
    for (actor, (bytes, choice)) in bytes.chunks_exact(8).zip(choices).enumerate() {
        let found = word(bytes, 0);
        if found >= width as u64 {
            return Err("ACT: a choice is out of range".to_string());
        }
        if mask.as_ref().is_some_and(|mask| mask.forbids(actor, width, found as usize)) {
            return Err("ACT: a choice is not allowed".to_string());
        }
        *choice = found as i64;
    }
    Ok(())
}
