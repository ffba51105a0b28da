use crate::action::Kind;
use crate::obs::Obs;
use crate::schema::Schema;

/// One array of a frame.
#[derive(Default)]
struct Slot {
    bytes: Vec<u8>,
    /// Flags of earlier rows, all 1, while the slot is absent.
    num_implied: usize,
    is_present: bool,
    are_flags: bool,
}

impl Slot {
    fn of_values(is_present: bool) -> Slot {
        Slot { is_present, ..Slot::default() }
    }

    fn of_flags() -> Slot {
        Slot { are_flags: true, ..Slot::default() }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.num_implied = 0;
        self.is_present &= !self.are_flags;
    }

    /// Adds flags; `None` = all 1.
    fn add_flags(&mut self, flags: Option<&[u8]>, count: usize) {
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

    fn add_indices(&mut self, indices: impl Iterator<Item = i64>) {
        for index in indices {
            self.bytes.extend_from_slice(&index.to_le_bytes());
        }
    }
}

fn add_floats(bytes: &mut Vec<u8>, values: &[f32]) {
    let first = bytes.len();
    bytes.resize(first + 4 * values.len(), 0);
    for (place, value) in bytes[first..].chunks_exact_mut(4).zip(values) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

/// Fills up to a multiple of 8 bytes.
pub fn pad(bytes: &mut Vec<u8>, value: u8) {
    bytes.resize(bytes.len().next_multiple_of(8), value);
}

/// Observations of several rows.
pub struct Frame {
    slots: Vec<Slot>,
    /// Row by row.
    lengths: Vec<i64>,
    num_lines: usize,
    num_rows: usize,
}

impl Frame {
    pub fn new(schema: &Schema) -> Frame {
        let mut slots = Vec::new();
        let mut num_lines = schema.entities.len();
        for (_, features) in &schema.entities {
            slots.extend([Slot::of_values(!features.is_empty()), Slot::of_flags()]);
        }
        if schema.has_global() {
            slots.extend([Slot::of_values(!schema.globals.is_empty()), Slot::of_flags()]);
            num_lines += 1;
        }
        for action in &schema.actions {
            let selects = action.kind == Kind::SelectEntity;
            slots.push(Slot::of_values(action.kind != Kind::GlobalCategorical));
            slots.extend([Slot::of_flags(), Slot::of_values(selects)]);
            num_lines += 1 + usize::from(selects);
        }
        Frame { slots, lengths: Vec::new(), num_lines, num_rows: 0 }
    }

    pub fn clear(&mut self) {
        self.slots.iter_mut().for_each(Slot::clear);
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
        let mut slots = self.slots.iter_mut();
        let mut next = || slots.next().expect("as many slots as in `new`");
        for entity in 0..schema.entities.len() {
            let count = obs.num_entities(entity);
            let (features, visible) = (next(), next());
            for values in obs.values(entity) {
                add_floats(&mut features.bytes, values);
            }
            visible.add_flags(obs.visible_of(entity), count);
            self.lengths.push(count as i64);
        }
        if schema.has_global() {
            add_floats(&mut next().bytes, obs.global_values());
            next();
            self.lengths.push(1);
        }
        for (i, action) in schema.actions.iter().enumerate() {
            let (actors, mask, actees) = (next(), next(), next());
            let asked = obs.asked(i);
            let num_actors = asked.map_or(0, |asked| asked.num_actors);
            let width = asked.map_or(0, |asked| asked.width);
            self.lengths.push(num_actors as i64);
            if let Some(asked) = asked {
                actors.add_indices(obs.actors_asked(asked).iter().copied());
                if action.kind != Kind::Continuous {
                    mask.add_flags(obs.mask_of(asked), num_actors * width);
                }
            }
            if let Some(selected) = action.selects {
                let num_actees = if num_actors > 0 { width } else { 0 };
                let first = obs.first_index(selected);
                actees.add_indices((first..first + num_actees).map(|index| index as i64));
                self.lengths.push(num_actees as i64);
            }
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.slots.iter().map(|slot| u8::from(slot.is_present)));
        pad(out, 0);
        let first = out.len();
        out.resize(first + 8 * self.lengths.len(), 0);
        let mut places = out[first..].chunks_exact_mut(8);
        for line in 0..self.num_lines {
            let lengths = self.lengths[line.min(self.lengths.len())..].iter();
            for (length, place) in lengths.step_by(self.num_lines).zip(&mut places) {
                place.copy_from_slice(&length.to_le_bytes());
            }
        }
        for slot in self.slots.iter().filter(|slot| slot.is_present) {
            out.extend_from_slice(&slot.bytes);
            pad(out, 0);
        }
    }
}
