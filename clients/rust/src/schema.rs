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
    /// Number of actions directly before it on whose choices it depends.
    pub num_given: usize,
    /// Whether its mask has a row of flags for each choice of the action directly before it.
    pub is_nested: bool,
}

/// An entity type; a relation has the indices of the types of its two entities.
#[derive(Clone)]
pub(crate) struct EntitySchema {
    pub name: &'static str,
    pub features: Names,
    pub references: Option<[usize; 2]>,
}

/// Entities, actions and metrics of a game.
pub(crate) struct Schema {
    pub num_agents: usize,
    pub globals: Names,
    pub has_global: bool,
    pub entities: Vec<EntitySchema>,
    pub actions: Vec<ActionSchema>,
    pub metrics: Vec<&'static str>,
}

/// Whether two names are equal; fast for names that are the same constant.
#[inline]
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    std::ptr::eq(one, other) || one == other
}

/// Name, features and, of a relation, names of the types of both entities.
pub(crate) type EntitySpec = (&'static str, Names, Option<[&'static str; 2]>);

fn entities_of(types: &[EntitySpec]) -> Result<Vec<EntitySchema>, String> {
    let index_of = |relation: &str, other: &str| {
        let is_other =
            |(known, _, references): &EntitySpec| *known == other && references.is_none();
        types.iter().position(is_other).ok_or_else(|| {
            format!(
                "relation {relation} refers to {other}: add .entity::<{other}>() to the game, an \
                 entity type that is not a relation"
            )
        })
    };
    let made = types.iter().map(|&(name, features, references)| {
        let references = match references {
            Some([one, other]) => Some([index_of(name, one)?, index_of(name, other)?]),
            None => None,
        };
        Ok(EntitySchema { name, features, references })
    });
    made.collect()
}

impl Schema {
    pub fn new(
        num_agents: usize,
        globals: Names,
        mut types: Vec<EntitySpec>,
        specs: Vec<ActionSpec>,
        metrics: Vec<&'static str>,
    ) -> Result<Schema, String> {
        if specs.is_empty() {
            return Err("a game needs an action: add .action::<...>() to it".to_string());
        }
        types.sort_by_key(|(_, _, references)| references.is_some()); // stable: relations come last
        let entities = entities_of(&types)?;
        let mut actions: Vec<ActionSchema> = Vec::new();
        for spec in specs {
            let name = spec.name;
            let selects = match spec.selects {
                None => None,
                Some(entity) => {
                    let found = entities.iter().position(|known| is_same(known.name, entity));
                    Some(found.ok_or_else(|| {
                        format!("{name} selects {entity}: add .entity::<{entity}>() to the game")
                    })?)
                }
            };
            if actions.iter().any(|known| known.name == name) {
                return Err(format!("the game has two actions with the name {name}"));
            }
            let (id, kind, num_given) = (spec.id, spec.kind, spec.num_given);
            let before = if num_given > 0 { actions.last() } else { None };
            let is_global = |kind| kind == Kind::GlobalCategorical;
            if before.is_some_and(|before| is_global(before.kind) != is_global(kind)) {
                return Err(format!(
                    "{name}: either all parts of a decision or none must be global: use Categorical \
                     for an enum of actors"
                ));
            }
            let is_nested = before.is_some_and(|before| before.kind != Kind::Continuous);
            actions.push(ActionSchema {
                id,
                name,
                kind,
                labels: spec.labels,
                bounds: spec.bounds,
                selects,
                num_given,
                is_nested,
            });
        }
        let mut kinds = actions.iter().map(|action| action.kind);
        let has_global = !globals.is_empty() || kinds.any(|kind| kind == Kind::GlobalCategorical);
        Ok(Schema { num_agents, globals, has_global, entities, actions, metrics })
    }

    /// Number of features of an entity type, or of `Global`, which follows the last one.
    pub fn width(&self, entity: usize) -> usize {
        self.entities.get(entity).map_or(self.globals, |known| known.features).len()
    }

    /// Index of an entity type, which is probably `guess`.
    #[inline]
    #[track_caller]
    pub fn entity(&self, name: &str, guess: usize) -> usize {
        if self.entities.get(guess).is_some_and(|known| is_same(known.name, name)) {
            return guess;
        }
        let found = self.entities.iter().position(|known| is_same(known.name, name));
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
        let entities = self.entities.iter().map(|entity| {
            let (name, features) = (quoted(entity.name), names(entity.features));
            let references = entity.references.map_or(String::new(), |both| {
                format!(", \"references\": {}", names(&both.map(|other| self.entities[other].name)))
            });
            format!("{{\"name\": {name}, \"features\": {features}{references}}}")
        });
        let actions = self.actions.iter().enumerate().map(|(i, action)| {
            let mut json = format!(
                "{{\"name\": {}, \"kind\": {}",
                quoted(&action.name),
                quoted(action.kind.name())
            );
            match action.selects {
                Some(entity) => {
                    json += &format!(", \"selects\": {}", quoted(self.entities[entity].name))
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
            if action.num_given > 0 {
                let given = self.given(i).map(|other| quoted(&other.name));
                json += &format!(", \"given\": {}", list(given));
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

    /// The actions on whose choices another one depends.
    fn given(&self, action: usize) -> impl Iterator<Item = &ActionSchema> {
        self.actions[action - self.actions[action].num_given..action].iter()
    }

    fn checksum(&self) -> u64 {
        let mut text = format!("agents {}\n", self.num_agents);
        for feature in self.globals {
            text += &format!("global {feature}\n");
        }
        for entity in &self.entities {
            text += &format!("entity {}\n", entity.name);
            for feature in entity.features {
                text += &format!("feature {feature}\n");
            }
            for other in entity.references.into_iter().flatten() {
                text += &format!("reference {}\n", self.entities[other].name);
            }
        }
        for (i, action) in self.actions.iter().enumerate() {
            text += &format!("action {} {}\n", action.name, action.kind.name());
            for label in action.labels {
                text += &format!("label {label}\n");
            }
            for other in self.given(i) {
                text += &format!("given {}\n", other.name);
            }
            if let Some(entity) = action.selects {
                text += &format!("selects {}\n", self.entities[entity].name);
            }
        }
        text.bytes().fold(0xCBF2_9CE4_8422_2325, |state, byte| {
            (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
        })
    }
}
