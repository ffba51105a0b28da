use crate::action::Kind;
use crate::obs::Obs;
use crate::schema::Schema;

/// Flags of all rows, which are left out if all are 1.
#[derive(Default)]
struct Flags {
    bytes: Vec<u8>,
    /// Flags of earlier rows, all 1, while there is no other.
    num_implied: usize,
    is_present: bool,
}

impl Flags {
    fn clear(&mut self) {
        self.bytes.clear();
        self.num_implied = 0;
        self.is_present = false;
    }

    /// Adds flags; `None` = all 1.
    #[inline]
    fn add(&mut self, flags: Option<&[u8]>, count: usize) {
        if !self.is_present {
            if flags.is_none() {
                self.num_implied += count;
                return;
            }
            self.is_present = true;
            self.bytes.resize(self.num_implied, 1);
        }
        match flags {
            Some(flags) => self.bytes.extend_from_slice(flags),
            None => self.bytes.resize(self.bytes.len() + count, 1),
        }
    }
}

/// Entities of a type. Without features, `features` stays empty and is left out.
#[derive(Default)]
struct Entities {
    features: Vec<f32>,
    visible: Flags,
}

#[derive(Default)]
struct Actors {
    indices: Vec<i64>,
    mask: Flags,
    actees: Vec<i64>,
}

/// Fills up to a multiple of 8 bytes.
pub fn pad(bytes: &mut Vec<u8>, value: u8) {
    bytes.resize(bytes.len().next_multiple_of(8), value);
}

/// Appends numbers; much faster than one by one.
pub fn write_numbers<const N: usize>(
    out: &mut Vec<u8>,
    numbers: impl ExactSizeIterator<Item = [u8; N]>,
) {
    let first = out.len();
    out.resize(first + N * numbers.len(), 0);
    for (place, number) in out[first..].chunks_exact_mut(N).zip(numbers) {
        place.copy_from_slice(&number);
    }
    pad(out, 0);
}

/// Observations of several rows.
pub struct Frame {
    /// The last one is `Global`, if the game has it.
    entities: Vec<Entities>,
    actions: Vec<Actors>,
    /// Row by row.
    lengths: Vec<i64>,
    num_lines: usize,
    num_rows: usize,
}

impl Frame {
    pub fn new(schema: &Schema) -> Frame {
        let num_entities = schema.entities.len() + usize::from(schema.has_global);
        let num_selecting = schema.actions.iter().filter(|action| action.selects.is_some()).count();
        Frame {
            entities: (0..num_entities).map(|_| Entities::default()).collect(),
            actions: schema.actions.iter().map(|_| Actors::default()).collect(),
            lengths: Vec::new(),
            num_lines: num_entities + schema.actions.len() + num_selecting,
            num_rows: 0,
        }
    }

    pub fn clear(&mut self) {
        for entities in &mut self.entities {
            entities.features.clear();
            entities.visible.clear();
        }
        for actors in &mut self.actions {
            actors.indices.clear();
            actors.mask.clear();
            actors.actees.clear();
        }
        self.lengths.clear();
        self.num_rows = 0;
    }

    /// Adds an observation; `None` = an empty row.
    pub fn add(&mut self, schema: &Schema, obs: Option<&Obs>) {
        self.num_rows += 1;
        let Some(obs) = obs else {
            self.lengths.resize(self.num_rows * self.num_lines, 0);
            return;
        };
        let mut groups = obs.groups().peekable();
        for (i, entities) in self.entities[..schema.entities.len()].iter_mut().enumerate() {
            let mut count = 0;
            while let Some((_, num_own, values)) = groups.next_if(|(entity, ..)| *entity == i) {
                entities.features.extend_from_slice(values);
                count += num_own;
            }
            entities.visible.add(obs.visible_of(i), count);
            self.lengths.push(count as i64);
        }
        if schema.has_global {
            let global = &mut self.entities[schema.entities.len()];
            global.features.extend_from_slice(obs.global_values());
            self.lengths.push(1);
        }
        for (i, action) in schema.actions.iter().enumerate() {
            let actors = &mut self.actions[i];
            let asked = obs.asked(i);
            let (num_actors, width, num_rows) =
                asked.map_or((0, 0, 0), |asked| (asked.num_actors, asked.width, asked.num_rows));
            self.lengths.push(num_actors as i64);
            if let Some(asked) = asked {
                actors.indices.extend_from_slice(obs.actors_asked(asked));
                actors.mask.add(obs.mask_of(asked), num_actors * width * num_rows);
            }
            if let Some(selected) = action.selects {
                let num_actees = if num_actors > 0 { width } else { 0 };
                let first = obs.first_index(selected);
                actors.actees.extend((first..first + num_actees).map(|index| index as i64));
                self.lengths.push(num_actees as i64);
            }
        }
    }

    pub fn write(&self, schema: &Schema, out: &mut Vec<u8>) {
        let entities = || self.entities.iter().enumerate().map(|(i, own)| (schema.width(i), own));
        let actions = || schema.actions.iter().zip(&self.actions);
        for (width, own) in entities() {
            out.extend([width > 0, own.visible.is_present].map(u8::from));
        }
        for (action, own) in actions() {
            let has_indices = action.kind != Kind::GlobalCategorical;
            let is_present = [has_indices, own.mask.is_present, action.selects.is_some()];
            out.extend(is_present.map(u8::from));
        }
        pad(out, 0);
        for line in 0..self.num_lines.min(self.lengths.len()) {
            let lengths = self.lengths[line..].iter().step_by(self.num_lines);
            write_numbers(out, lengths.map(|length| length.to_le_bytes()));
        }
        for (_, own) in entities() {
            write_numbers(out, own.features.iter().map(|value| value.to_le_bytes()));
            out.extend_from_slice(&own.visible.bytes);
            pad(out, 0);
        }
        for (_, own) in actions() {
            write_numbers(out, own.indices.iter().map(|index| index.to_le_bytes()));
            out.extend_from_slice(&own.mask.bytes);
            pad(out, 0);
            write_numbers(out, own.actees.iter().map(|index| index.to_le_bytes()));
        }
    }
}
