use std::any::TypeId;
use std::cell::RefCell;
use std::ops::Range;

use crate::action::{Action, Asked, Kind, PartId};
use crate::entity::Featurizable;
use crate::schema::{is_same, ActionSchema, Schema};

/// Which actions the entities of a group perform.
#[derive(Clone)]
enum Role {
    Passive,
    /// All actions that are asked.
    All,
    /// A range of `Parts::roles`.
    Some(Range<usize>),
}

struct Group {
    name: &'static str,
    /// Index of the entity type, once the observation is complete.
    entity: usize,
    count: usize,
    values: Range<usize>,
    role: Role,
}

struct Mask {
    action: TypeId,
    flags: Range<usize>,
    /// The part directly before, if there are flags for each of its choices.
    given: Option<TypeId>,
}

struct Visible {
    name: &'static str,
    entity: usize,
    flags: Range<usize>,
}

#[derive(Default)]
struct Parts {
    score: f64,
    values: Vec<f32>,
    /// Once the observation is complete, in the order of their types.
    groups: Vec<Group>,
    roles: Vec<TypeId>,
    globals: Option<Range<usize>>,
    flags: Vec<u8>,
    masks: Vec<Mask>,
    visible: Vec<Visible>,
    metrics: Vec<(&'static str, f64)>,
    /// Indices of the actions that are asked.
    actions: Vec<usize>,
    asked: Vec<Asked>,
    /// Index of each actor in the observation.
    actors: Vec<i64>,
}

impl Parts {
    fn clear(&mut self) {
        self.values.clear();
        self.groups.clear();
        self.roles.clear();
        self.globals = None;
        self.flags.clear();
        self.masks.clear();
        self.visible.clear();
        self.metrics.clear();
        self.actions.clear();
        self.asked.clear();
        self.actors.clear();
    }
}

thread_local! {
    /// Memory of observations, to be used again.
    #[allow(clippy::vec_box)] // an `Obs` is moved often
    static SPARE: RefCell<Vec<Box<Parts>>> = const { RefCell::new(Vec::new()) };
}

/// An observation: entities, actors, masks, and the score so far.
pub struct Obs {
    parts: Option<Box<Parts>>,
}

impl Drop for Obs {
    #[inline]
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            // Fails only while the thread ends.
            let _ = SPARE.try_with(|spare| spare.borrow_mut().push(parts));
        }
    }
}

impl Obs {
    /// `score` is the agent's score so far in this episode; its change is the reward.
    #[inline]
    pub fn new(score: f64) -> Obs {
        let spare = SPARE.with(|spare| spare.borrow_mut().pop());
        let mut parts = spare.unwrap_or_default();
        parts.clear();
        parts.score = score;
        Obs { parts: Some(parts) }
    }

    #[inline]
    fn get(&self) -> &Parts {
        self.parts.as_ref().expect("present until the drop")
    }

    #[inline]
    fn parts(&mut self) -> &mut Parts {
        self.parts.as_mut().expect("present until the drop")
    }

    /// Adds entities of one type.
    #[track_caller]
    pub fn entities<E: Featurizable>(self, entities: impl IntoIterator<Item = E>) -> Obs {
        self.add(entities, Role::Passive)
    }

    /// Adds entities that perform all actions that are asked.
    #[track_caller]
    pub fn actors<E: Featurizable>(self, entities: impl IntoIterator<Item = E>) -> Obs {
        self.add(entities, Role::All)
    }

    /// Adds entities that perform the action `A`, or several: `actors_of::<(A, B), _>(...)`.
    #[track_caller]
    pub fn actors_of<A: Action, E: Featurizable>(
        mut self,
        entities: impl IntoIterator<Item = E>,
    ) -> Obs {
        let roles = &mut self.parts().roles;
        let first = roles.len();
        A::each(&mut |action| roles.push(action));
        let role = Role::Some(first..roles.len());
        self.add(entities, role)
    }

    #[track_caller]
    fn add<E: Featurizable>(mut self, entities: impl IntoIterator<Item = E>, role: Role) -> Obs {
        let parts = self.parts();
        let first = parts.values.len();
        let mut count = 0;
        for entity in entities {
            entity.featurize(&mut parts.values);
            count += 1;
        }
        let found = parts.values.len() - first;
        let wanted = count * E::FEATURES.len();
        assert!(found == wanted, "{}: expected {wanted} features, got {found}", E::NAME);
        parts.groups.push(Group {
            name: E::NAME,
            entity: 0,
            count,
            values: first..first + found,
            role,
        });
        self
    }

    /// Sets the global features.
    #[track_caller]
    pub fn globals<E: Featurizable>(mut self, features: E) -> Obs {
        let parts = self.parts();
        let first = parts.values.len();
        features.featurize(&mut parts.values);
        let end = parts.values.len();
        let (wanted, found) = (E::FEATURES.len(), end - first);
        assert!(found == wanted, "{}: expected {wanted} features, got {found}", E::NAME);
        parts.globals = Some(first..end);
        self
    }

    /// Allows only some choices of an action: one flag per choice; with several actors, the flags
    /// of one after the other.
    pub fn mask<A: Action>(mut self, flags: impl IntoIterator<Item = bool>) -> Obs {
        let parts = self.parts();
        let flags = append(&mut parts.flags, flags);
        A::each(&mut |action| {
            parts.masks.push(Mask { action, flags: flags.clone(), given: None });
        });
        self
    }

    /// As `mask`, for a part of a decision: `mask_part(Send::trucks(), flags)`.
    pub fn mask_part(mut self, part: PartId, flags: impl IntoIterator<Item = bool>) -> Obs {
        let parts = self.parts();
        let flags = append(&mut parts.flags, flags);
        parts.masks.push(Mask { action: part.0, flags, given: None });
        self
    }

    /// Allows only some choices of a part, which depend on the choice of the part directly before
    /// it: for each actor, one flag per choice for each choice of that part.
    pub fn mask_given(
        mut self,
        part: PartId,
        given: PartId,
        flags: impl IntoIterator<Item = bool>,
    ) -> Obs {
        let parts = self.parts();
        let flags = append(&mut parts.flags, flags);
        parts.masks.push(Mask { action: part.0, flags, given: Some(given.0) });
        self
    }

    /// Hides the entities of a type whose flag is false from the policy.
    pub fn visible<E: Featurizable>(mut self, flags: impl IntoIterator<Item = bool>) -> Obs {
        let parts = self.parts();
        let flags = append(&mut parts.flags, flags);
        parts.visible.push(Visible { name: E::NAME, entity: 0, flags });
        self
    }

    /// Sets a metric, which must be among those of the game.
    pub fn metric(mut self, name: &'static str, value: f64) -> Obs {
        self.parts().metrics.push((name, value));
        self
    }
}

fn append(all: &mut Vec<u8>, flags: impl IntoIterator<Item = bool>) -> Range<usize> {
    let first = all.len();
    all.extend(flags.into_iter().map(u8::from));
    first..all.len()
}

/// What the server reads, once the observation is complete.
impl Obs {
    /// Asks for actions.
    #[track_caller]
    pub(crate) fn ask<A: Action>(&mut self, schema: &Schema) {
        let actions = &mut self.parts().actions;
        A::each(&mut |id| actions.push(schema.action(id).unwrap_or(usize::MAX)));
        assert!(
            !actions.contains(&usize::MAX),
            "the game does not have {}: add .action::<...>() to it",
            std::any::type_name::<A>()
        );
    }

    /// Asks for the actions that another observation has asked for.
    pub(crate) fn ask_again(&mut self, asked: &[Asked]) {
        self.parts().actions.extend(asked.iter().map(|asked| asked.action));
    }

    /// Completes the observation; panics if the game does not have what it contains.
    #[track_caller]
    pub(crate) fn complete(&mut self, schema: &Schema) {
        let parts = self.parts();
        for (i, group) in parts.groups.iter_mut().enumerate() {
            group.entity = schema.entity(group.name, i);
        }
        if !parts.groups.is_sorted_by_key(|group| group.entity) {
            parts.groups.sort_by_key(|group| group.entity);
        }
        for group in &parts.groups {
            let is_passive = matches!(group.role, Role::Passive);
            let is_relation = schema.entities[group.entity].references.is_some();
            assert!(is_passive || !is_relation, "{}: relations cannot act", group.name);
        }
        parts.require_references(schema);
        for visible in &mut parts.visible {
            visible.entity = schema.entity(visible.name, 0);
        }
        for visible in &parts.visible {
            let name = visible.name;
            let (found, wanted) = (visible.flags.len(), parts.num_entities(visible.entity));
            assert!(
                found == wanted,
                "Obs::visible: expected {wanted} flags for {name}, got {found}"
            );
        }
        for (name, _) in &parts.metrics {
            let is_known = schema.metrics.iter().any(|known| is_same(known, name));
            assert!(is_known, "the game has no metric {name}: add .metric(\"{name}\") to it");
        }
        let num_globals = parts.globals.as_ref().map_or(0, |globals| globals.len());
        let wanted = schema.globals.len();
        assert!(
            num_globals == wanted,
            "expected {wanted} global features, got {num_globals}: call Obs::globals"
        );
        let mut first_answer = [0, 0];
        for i in 0..parts.actions.len() {
            let action = parts.actions[i];
            let name = &schema.actions[action].name;
            let is_first = parts.asked.iter().all(|asked| asked.action != action);
            assert!(is_first, "Agent::act: {name} is the same action twice");
            let mut asked = parts.ask(schema, action);
            let first = &mut first_answer[usize::from(asked.is_continuous)];
            asked.first_answer = *first;
            *first += asked.num_answers();
            parts.asked.push(asked);
        }
    }

    #[inline]
    pub(crate) fn score(&self) -> f64 {
        self.get().score
    }

    #[inline]
    pub(crate) fn asked(&self, action: usize) -> Option<&Asked> {
        self.get().asked.iter().find(|asked| asked.action == action)
    }

    #[inline]
    pub(crate) fn all_asked(&self) -> &[Asked] {
        &self.get().asked
    }

    /// Moves out what is needed for the answers: what was asked, and the flags of masks.
    #[inline]
    pub(crate) fn give(mut self, asked: &mut Vec<Asked>, flags: &mut Vec<u8>) {
        let parts = self.parts();
        std::mem::swap(asked, &mut parts.asked);
        if asked.iter().any(|asked| asked.mask.is_some()) {
            std::mem::swap(flags, &mut parts.flags);
        }
    }

    #[inline]
    pub(crate) fn actors_asked(&self, asked: &Asked) -> &[i64] {
        &self.get().actors[asked.actors.clone()]
    }

    #[inline]
    pub(crate) fn mask_of(&self, asked: &Asked) -> Option<&[u8]> {
        let mask = asked.mask.clone()?;
        Some(&self.get().flags[mask])
    }

    /// Entity type, number of entities and features of each group, in the order of the types.
    #[inline]
    pub(crate) fn groups(&self) -> impl Iterator<Item = (usize, usize, &[f32])> {
        let parts = self.get();
        let groups = parts.groups.iter();
        groups.map(|group| (group.entity, group.count, &parts.values[group.values.clone()]))
    }

    /// Flags of the entities of a type, if some of them are hidden.
    #[inline]
    pub(crate) fn visible_of(&self, entity: usize) -> Option<&[u8]> {
        let parts = self.get();
        let visible = parts.visible.iter().rfind(|visible| visible.entity == entity)?;
        let flags = &parts.flags[visible.flags.clone()];
        flags.contains(&0).then_some(flags)
    }

    #[inline]
    pub(crate) fn global_values(&self) -> &[f32] {
        let parts = self.get();
        parts.globals.as_ref().map_or(&[], |globals| &parts.values[globals.clone()])
    }

    pub(crate) fn metric_of(&self, name: &str) -> f64 {
        let metric = self.get().metrics.iter().rfind(|(known, _)| is_same(known, name));
        metric.map_or(f64::NAN, |(_, value)| *value)
    }

    /// Index of the first entity of a type.
    pub(crate) fn first_index(&self, entity: usize) -> usize {
        self.get().first_index(entity)
    }
}

impl Parts {
    fn num_entities(&self, entity: usize) -> usize {
        let groups = self.groups.iter().filter(|group| group.entity == entity);
        groups.map(|group| group.count).sum()
    }

    fn first_index(&self, entity: usize) -> usize {
        let groups = self.groups.iter().filter(|group| group.entity < entity);
        groups.map(|group| group.count).sum()
    }

    #[track_caller]
    fn ask(&mut self, schema: &Schema, action: usize) -> Asked {
        let spec = &schema.actions[action];
        let first = self.actors.len();
        let mut num_actors = 1;
        if spec.kind != Kind::GlobalCategorical {
            self.add_actors(spec.id);
            num_actors = self.actors.len() - first;
        }
        let width = match spec.selects {
            Some(entity) => self.num_entities(entity),
            None => spec.labels.len(),
        };
        assert!(
            width > 0 || num_actors == 0,
            "{}: there is no entity to select; ask for the action only if there is one",
            spec.name
        );
        let num_rows = match self.asked.last() {
            Some(before) if spec.is_nested => before.width,
            _ => 1,
        };
        let mask = self.mask_of(schema, action, num_actors, width, num_rows);
        let mask = match spec.selects {
            Some(selected) if width > 0 && schema.entities[selected].references.is_some() => {
                Some(self.own_relations(schema, spec, first, num_rows, mask))
            }
            _ => mask,
        };
        if let Some(mask) = &mask {
            let mut flags = self.flags[mask.clone()].chunks_exact((width * num_rows).max(1));
            assert!(
                flags.all(|flags| flags.contains(&1)),
                "{}: the mask allows no choice; leave such actors out with Obs::actors_of",
                spec.name
            );
        }
        let actors = first..self.actors.len();
        Asked {
            action,
            is_continuous: spec.kind == Kind::Continuous,
            num_actors,
            width,
            num_rows,
            actors,
            mask,
            first_answer: 0,
        }
    }

    /// Range of an action's flags, with all rows of each actor; `None` = everything is allowed.
    #[track_caller]
    fn mask_of(
        &mut self,
        schema: &Schema,
        action: usize,
        num_actors: usize,
        width: usize,
        num_rows: usize,
    ) -> Option<Range<usize>> {
        let spec = &schema.actions[action];
        let name = &spec.name;
        let mask = self.masks.iter().rfind(|mask| mask.action == spec.id)?;
        assert!(spec.kind != Kind::Continuous, "{name}: a continuous action has no mask");
        let (flags, given) = (mask.flags.clone(), mask.given);
        if let Some(given) = given {
            let is_before = spec.is_nested && schema.actions[action - 1].id == given;
            assert!(
                is_before,
                "{name}: its mask can depend only on the part directly before it, if that has choices"
            );
        }
        let own_rows = if given.is_some() { num_rows } else { 1 };
        let (found, wanted) = (flags.len(), num_actors * width * own_rows);
        assert!(
            found == wanted,
            "{name}: expected a mask of {wanted} flags, {} for each of {num_actors} actors, got \
             {found}",
            width * own_rows
        );
        if own_rows == num_rows {
            return Some(flags);
        }
        // The same flags after every choice.
        let first = self.flags.len();
        for actor in 0..num_actors {
            let own = flags.start + actor * width..flags.start + (actor + 1) * width;
            for _ in 0..num_rows {
                self.flags.extend_from_within(own.clone());
            }
        }
        Some(first..self.flags.len())
    }

    /// Flags of an action that selects relations: those that start at each actor, of those that a
    /// mask allows.
    #[track_caller]
    fn own_relations(
        &mut self,
        schema: &Schema,
        spec: &ActionSchema,
        first_actor: usize,
        num_rows: usize,
        mask: Option<Range<usize>>,
    ) -> Range<usize> {
        let selected = spec.selects.expect("the action selects relations");
        let relation = &schema.entities[selected];
        let [source, _] = relation.references.expect("the type is a relation");
        let (first, count) = (self.first_index(source), self.num_entities(source));
        let sources: Vec<f32> = self.rows_of(schema, selected).map(|row| row[0]).collect();
        let start = self.flags.len();
        for (i, &actor) in self.actors[first_actor..].iter().enumerate() {
            let place = (actor as usize).wrapping_sub(first);
            assert!(
                place < count,
                "{}: an actor chooses among the {} that start at it, so it must be a {}: say which \
                 actors perform it with Obs::actors_of",
                spec.name,
                relation.name,
                schema.entities[source].name
            );
            for k in 0..num_rows * sources.len() {
                let is_own = sources[k % sources.len()] == place as f32;
                let at = i * num_rows * sources.len() + k;
                let is_allowed = mask.as_ref().is_none_or(|mask| self.flags[mask.start + at] == 1);
                self.flags.push(u8::from(is_own && is_allowed));
            }
        }
        start..self.flags.len()
    }

    /// The features of each entity of a type.
    fn rows_of<'a>(&'a self, schema: &Schema, entity: usize) -> impl Iterator<Item = &'a [f32]> {
        let width = schema.width(entity).max(1);
        let groups = self.groups.iter().filter(move |group| group.entity == entity);
        groups.flat_map(move |group| self.values[group.values.clone()].chunks_exact(width))
    }

    /// Requires relations of entities that the observation has.
    #[track_caller]
    fn require_references(&self, schema: &Schema) {
        for (i, relation) in schema.entities.iter().enumerate() {
            for (k, other) in relation.references.into_iter().flatten().enumerate() {
                let (count, name) = (self.num_entities(other), schema.entities[other].name);
                for (place, row) in self.rows_of(schema, i).enumerate() {
                    assert!(
                        row[k] >= 0.0 && row[k] < count as f32,
                        "relation {}: {} of row {place} is {}, expected the index of a {name}, of \
                         which the observation has {count}",
                        relation.name,
                        relation.features[k],
                        row[k]
                    );
                }
            }
        }
    }

    /// Appends the indices of the actors of an action, in order.
    fn add_actors(&mut self, action: TypeId) {
        let mut index = 0;
        for group in &self.groups {
            let acts = match &group.role {
                Role::Passive => false,
                Role::All => true,
                Role::Some(roles) => self.roles[roles.clone()].contains(&action),
            };
            if acts {
                self.actors.extend((index..index + group.count).map(|i| i as i64));
            }
            index += group.count;
        }
    }
}
