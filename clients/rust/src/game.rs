use std::future::Future;
use std::pin::Pin;

use crate::action::{Action, ActionSpec};
use crate::agent::{Agent, Players};
use crate::entity::Featurizable;
use crate::json::quoted;
use crate::schema::{EntitySpec, Names, Schema};
use crate::settings::Settings;

pub(crate) type Episode = Pin<Box<dyn Future<Output = ()>>>;
/// Starts an episode with a seed.
pub(crate) type Start = Box<dyn Fn(&mut dyn FnMut() -> Agent, u64) -> Episode>;
type Play<S> = Box<dyn Fn(&mut dyn FnMut() -> Agent, u64, S) -> Episode>;
type Check<S> = Box<dyn Fn(&S) -> Result<(), String>>;

/// A game, which `play` plays for one episode. `S` are its settings.
pub struct Game<S = ()> {
    name: String,
    version: Option<String>,
    doc: Option<String>,
    play: Play<S>,
    check: Check<S>,
    num_agents: usize,
    globals: Names,
    entities: Vec<EntitySpec>,
    actions: Vec<ActionSpec>,
    metrics: Vec<&'static str>,
}

impl<S: Settings> Game<S> {
    /// `play(agent, seed, settings)` is an async function; with several agents, its first argument
    /// is an array.
    pub fn new<P: Players, R>(name: &str, play: impl Fn(P, u64, S) -> R + 'static) -> Game<S>
    where
        R: Future<Output = ()> + 'static,
    {
        Game {
            name: name.to_string(),
            version: None,
            doc: None,
            play: Box::new(move |agents, seed, settings| {
                Box::pin(play(P::gather(agents), seed, settings))
            }),
            check: Box::new(|_| Ok(())),
            num_agents: P::COUNT,
            globals: &[],
            entities: Vec::new(),
            actions: Vec::new(),
            metrics: Vec::new(),
        }
    }

    /// Adds an entity type, or a relation, which follows all entity types.
    pub fn entity<E: Featurizable>(mut self) -> Game<S> {
        self.entities.push((E::NAME, E::FEATURES, E::REFERENCES));
        self
    }

    /// Adds an action, or several: `action::<(A, B)>()`.
    pub fn action<A: Action>(mut self) -> Game<S> {
        A::declare(&mut self.actions);
        self
    }

    /// Sets the global features, which every observation needs then.
    pub fn globals<E: Featurizable>(mut self) -> Game<S> {
        self.globals = E::FEATURES;
        self
    }

    /// Adds a metric, a number that each observation may have.
    pub fn metric(mut self, name: &'static str) -> Game<S> {
        self.metrics.push(name);
        self
    }

    /// Sets a function that returns the reason why settings cannot be played.
    pub fn check(mut self, check: impl Fn(&S) -> Result<(), String> + 'static) -> Game<S> {
        self.check = Box::new(check);
        self
    }

    /// Sets the version of the rules.
    pub fn version(mut self, version: &str) -> Game<S> {
        self.version = Some(version.to_string());
        self
    }

    /// Sets rules and goal for players.
    pub fn doc(mut self, doc: &str) -> Game<S> {
        self.doc = Some(doc.to_string());
        self
    }

    pub(crate) fn hello(&self, token: &str) -> String {
        let mut json = format!("{{\"protocol\": 1, \"name\": {}", quoted(&self.name));
        let texts = [("version", &self.version), ("doc", &self.doc)];
        for (key, text) in texts {
            if let Some(text) = text {
                json += &format!(", \"{key}\": {}", quoted(text));
            }
        }
        let settings = S::default().describe();
        let settings: Vec<String> =
            settings.iter().map(|(name, value)| format!("{}: {value}", quoted(name))).collect();
        let settings = settings.join(", ");
        json + &format!(", \"token\": {}, \"settings\": {{{settings}}}}}", quoted(token))
    }

    pub(crate) fn schema(&self) -> Result<Schema, String> {
        Schema::new(
            self.num_agents,
            self.globals,
            self.entities.clone(),
            self.actions.clone(),
            self.metrics.clone(),
        )
    }

    /// The function that starts an episode with these settings.
    pub(crate) fn starter(self, settings: S) -> Result<Start, String> {
        (self.check)(&settings)?;
        Ok(Box::new(move |agents, seed| (self.play)(agents, seed, settings.clone())))
    }
}
