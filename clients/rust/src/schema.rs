use std::any::TypeId;

use crate::action::{ActionSpec, Kind};
use crate::json::{list, quoted};

pub(crate) type Names = &'static [&'static str];

/// An action of a game.
pub(crate) struct ActionSchema {
    pub id: TypeId,
    pub name: String,
    pub kind: Kind,
    pub labels: Names,
    pub bounds: &'static [(f32, f32)],
    /// Index of the entity type that is selected.
    pub selects: Option<usize>,
}

/// Entities, actions and metrics of a game.
pub(crate) struct Schema {
    pub num_agents: usize,
    pub globals: Names,
    pub has_global: bool,
    pub entities: Vec<(&'static str, Names)>,
    pub actions: Vec<ActionSchema>,
    pub metrics: Vec<&'static str>,
}

/// Whether two names are equal; fast for names that are the same constant.
#[inline]
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    std::ptr::eq(one, other) || one == other
}

impl Schema {
    pub fn new(
        num_agents: usize,
        globals: Names,
        entities: Vec<(&'static str, Names)>,
        specs: Vec<ActionSpec>,
        metrics: Vec<&'static str>,
    ) -> Result<Schema, String> {
        if specs.is_empty() {
            return Err("a game needs an action: add .action::<...>() to it".to_string());
        }
        let mut actions: Vec<ActionSchema> = Vec::new();
        for spec in specs {
            let name = spec.name;
            let selects = match spec.selects {
                None => None,
                Some(entity) => {
                    let found = entities.iter().position(|(known, _)| is_same(known, entity));
                    Some(found.ok_or_else(|| {
                        format!("{name} selects {entity}: add .entity::<{entity}>() to the game")
                    })?)
                }
            };
            if actions.iter().any(|known| known.name == name) {
                return Err(format!("the game has two actions with the name {name}"));
            }
            let (id, kind) = (spec.id, spec.kind);
            actions.push(ActionSchema {
                id,
                name,
                kind,
                labels: spec.labels,
                bounds: spec.bounds,
                selects,
            });
        }
        let mut kinds = actions.iter().map(|action| action.kind);
        let has_global = !globals.is_empty() || kinds.any(|kind| kind == Kind::GlobalCategorical);
        Ok(Schema { num_agents, globals, has_global, entities, actions, metrics })
    }

    /// Number of features of an entity type, or of `Global`, which follows the last one.
    pub fn width(&self, entity: usize) -> usize {
        self.entities.get(entity).map_or(self.globals, |(_, features)| features).len()
    }

    /// Index of an entity type, which is probably `guess`.
    #[inline]
    #[track_caller]
    pub fn entity(&self, name: &str, guess: usize) -> usize {
        if self.entities.get(guess).is_some_and(|(known, _)| is_same(known, name)) {
            return guess;
        }
        let found = self.entities.iter().position(|(known, _)| is_same(known, name));
        match found {
            Some(entity) => entity,
            None => panic!("the game has no entity {name}: add .entity::<{name}>() to it"),
        }
    }

    #[inline]
    pub fn action(&self, id: TypeId) -> Option<usize> {
        self.actions.iter().position(|action| action.id == id)
    }

    pub fn ready(&self) -> String {
        let names = |names: &[&str]| list(names.iter().map(|name| quoted(name)));
        let entities = self.entities.iter().map(|(name, features)| {
            format!("{{\"name\": {}, \"features\": {}}}", quoted(name), names(features))
        });
        let actions = self.actions.iter().map(|action| {
            let mut json = format!(
                "{{\"name\": {}, \"kind\": {}",
                quoted(&action.name),
                quoted(action.kind.name())
            );
            match action.selects {
                Some(entity) => {
                    json += &format!(", \"selects\": {}", quoted(self.entities[entity].0))
                }
                None => json += &format!(", \"labels\": {}", names(action.labels)),
            }
            if action.kind == Kind::Continuous {
                let bounds = action.bounds.iter();
                json += &format!(
                    ", \"low\": {}, \"high\": {}",
                    list(bounds.clone().map(|(low, _)| format!("{low:?}"))),
                    list(bounds.map(|(_, high)| format!("{high:?}")))
                );
            }
            json + "}"
        });
        format!(
            "{{\"num_agents\": {}, \"spaces\": {{\"global_features\": {}, \"entities\": {}, \
             \"actions\": {}}}, \"metrics\": {}, \"checksum\": \"{:016x}\"}}",
            self.num_agents,
            names(self.globals),
            list(entities),
            list(actions),
            names(&self.metrics),
            self.checksum(),
        )
    }

    fn checksum(&self) -> u64 {
        let mut text = format!("agents {}\n", self.num_agents);
        for feature in self.globals {
            text += &format!("global {feature}\n");
        }
        for (name, features) in &self.entities {
            text += &format!("entity {name}\n");
            for feature in *features {
                text += &format!("feature {feature}\n");
            }
        }
        for action in &self.actions {
            text += &format!("action {} {}\n", action.name, action.kind.name());
            for label in action.labels {
                text += &format!("label {label}\n");
            }
            if let Some(entity) = action.selects {
                text += &format!("selects {}\n", self.entities[entity].0);
            }
        }
        text.bytes().fold(0xCBF2_9CE4_8422_2325, |state, byte| {
            (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
        })
    }
}
