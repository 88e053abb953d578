//! The file of a transform: two lines of JSON.
//!
//! The first line has the format, its version and a checksum of the second. Many numbers of the second line are in
//! base64: little-endian `f32` or `u16`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::DIMS;
use crate::encode::{Column, Encoder, positions};
use crate::grams::BUCKETS;
use crate::numbers::NumberFormat;
use crate::transform::Transform;

/// The version of the file.
pub const VERSION: u32 = 1;
const FORMAT: &str = "sclub-features";

/// The reason why a file is not a transform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Another kind of file.
    #[error("it is no file of `sclub features --items`")]
    Format,
    /// A file of another release.
    #[error(
        "it has version {0}, and this release reads version {VERSION}; make it again with `sclub features --items`"
    )]
    Version(u32),
    /// The checksum does not agree.
    #[error(
        "it is damaged: its checksum does not agree; copy it again, or make it again with `sclub features --items`"
    )]
    Checksum,
    /// The contents do not agree with each other.
    #[error("it is damaged: {0}")]
    Contents(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    checksum: String,
}

#[derive(Serialize, Deserialize)]
struct Body {
    dim: usize,
    id: Option<String>,
    columns: Vec<WrittenColumn>,
    offset: String,
    projection: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    known: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    known_vectors: String,
}

#[derive(Serialize, Deserialize)]
struct WrittenColumn {
    name: String,
    #[serde(flatten)]
    encoder: WrittenEncoder,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum WrittenEncoder {
    Text {
        buckets: String,
        idf: String,
    },
    Tags {
        separator: Option<String>,
        tags: Vec<String>,
        idf: String,
        scale: f64,
    },
    Number {
        low: f64,
        high: f64,
        mean: f64,
        deviation: f64,
        /// Left out if it is that of earlier versions.
        #[serde(flatten)]
        format: NumberFormat,
    },
}

impl Transform {
    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let body = self.body();
        let head = Head {
            format: FORMAT.to_owned(),
            version: VERSION,
            checksum: checksum(&body),
        };
        let mut bytes = serde_json::to_vec(&head).expect("plain data");
        bytes.push(b'\n');
        bytes.extend(body);
        bytes.push(b'\n');
        bytes
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// If it is of another format or version, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, FileError> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let (head, body) = bytes.split_at(end.ok_or(FileError::Format)?);
        let head: Head = serde_json::from_slice(head).map_err(|_| FileError::Format)?;
        if head.format != FORMAT {
            return Err(FileError::Format);
        }
        if head.version != VERSION {
            return Err(FileError::Version(head.version));
        }
        let body = body.trim_ascii();
        if checksum(body) != head.checksum {
            return Err(FileError::Checksum);
        }
        let body: Body = serde_json::from_slice(body)
            .map_err(|_| FileError::Contents("a part is missing or of another type"))?;
        body.check()
    }

    /// A hash of the contents, in hexadecimal.
    pub fn digest(&self) -> String {
        checksum(&self.body())
    }

    fn body(&self) -> Vec<u8> {
        let columns = self.columns.iter().map(|column| WrittenColumn {
            name: column.name.clone(),
            encoder: match &column.encoder {
                Encoder::Text { buckets, idf } => WrittenEncoder::Text {
                    buckets: STANDARD.encode(
                        buckets
                            .iter()
                            .flat_map(|&bucket| (bucket as u16).to_le_bytes())
                            .collect::<Vec<u8>>(),
                    ),
                    idf: floats(idf),
                },
                Encoder::Tags {
                    separator,
                    tags,
                    idf,
                    scale,
                } => WrittenEncoder::Tags {
                    separator: separator.clone(),
                    tags: tags.clone(),
                    idf: floats(idf),
                    scale: *scale,
                },
                Encoder::Number {
                    low,
                    high,
                    mean,
                    deviation,
                    format,
                } => WrittenEncoder::Number {
                    low: *low,
                    high: *high,
                    mean: *mean,
                    deviation: *deviation,
                    format: format.clone(),
                },
            },
        });
        let body = Body {
            dim: self.dim,
            id: self.id.clone(),
            columns: columns.collect(),
            offset: floats(&self.offset),
            projection: floats(&self.projection),
            known: self.known_ids.clone(),
            known_vectors: floats(&self.known_vectors),
        };
        serde_json::to_vec(&body).expect("plain data")
    }
}

impl Body {
    fn check(self) -> Result<Transform, FileError> {
        let wrong = FileError::Contents;
        if !DIMS.contains(&self.dim) {
            return Err(wrong("its number of features is out of range"));
        }
        let size = self.dim - 1;
        let mut columns = Vec::with_capacity(self.columns.len());
        for column in self.columns {
            let encoder = column.encoder.check()?;
            columns.push(Column {
                name: column.name,
                encoder,
            });
        }
        if !columns.is_sorted_by(|a, b| a.name < b.name) {
            return Err(wrong("its columns are not in order"));
        }
        let width: usize = columns.iter().map(|column| column.encoder.width()).sum();
        let offset = read_floats(&self.offset)?;
        let projection = read_floats(&self.projection)?;
        let known_vectors = read_floats(&self.known_vectors)?;
        let known = positions(&self.known);
        let fits = offset.len() == size
            && projection.len() == width * size
            && known_vectors.len() == self.known.len() * size
            && known.len() == self.known.len();
        if !fits {
            return Err(wrong("its parts have different lengths"));
        }
        Ok(Transform {
            dim: self.dim,
            id: self.id,
            columns,
            offset,
            projection,
            known,
            known_ids: self.known,
            known_vectors,
        })
    }
}

impl WrittenEncoder {
    fn check(self) -> Result<Encoder, FileError> {
        let wrong = FileError::Contents;
        Ok(match self {
            WrittenEncoder::Text { buckets, idf } => {
                let bytes = read_base64(&buckets)?;
                let (words, rest) = bytes.as_chunks::<2>();
                let buckets: Vec<u32> = words
                    .iter()
                    .map(|&word| u32::from(u16::from_le_bytes(word)))
                    .collect();
                let idf = read_floats(&idf)?;
                let is_good = rest.is_empty()
                    && buckets.is_sorted_by(|a, b| a < b)
                    && buckets.last().is_none_or(|&last| last < BUCKETS)
                    && idf.len() == buckets.len();
                match is_good {
                    true => Encoder::Text { buckets, idf },
                    false => return Err(wrong("the buckets of a text are not in order")),
                }
            }
            WrittenEncoder::Tags {
                separator,
                tags,
                idf,
                scale,
            } => {
                let idf = read_floats(&idf)?;
                let is_good = tags.is_sorted_by(|a, b| a < b)
                    && scale.is_finite()
                    && scale > 0.0
                    && idf.len() == tags.len()
                    && separator.as_deref() != Some("");
                match is_good {
                    true => Encoder::Tags {
                        separator,
                        tags,
                        idf,
                        scale,
                    },
                    false => return Err(wrong("the tags of a column are not in order")),
                }
            }
            WrittenEncoder::Number {
                low,
                high,
                mean,
                deviation,
                format,
            } => {
                match low <= high && mean.is_finite() && deviation.is_finite() && deviation > 0.0 {
                    true => Encoder::Number {
                        low,
                        high,
                        mean,
                        deviation,
                        format,
                    },
                    false => return Err(wrong("the range of a number is not possible")),
                }
            }
        })
    }
}

fn checksum(body: &[u8]) -> String {
    blake3::hash(body).to_hex()[..32].to_owned()
}

fn floats(values: &[f32]) -> String {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    STANDARD.encode(bytes)
}

fn read_base64(text: &str) -> Result<Vec<u8>, FileError> {
    let wrong = |_| FileError::Contents("a part is not in base64");
    STANDARD.decode(text).map_err(wrong)
}

fn read_floats(text: &str) -> Result<Vec<f32>, FileError> {
    let bytes = read_base64(text)?;
    let (words, rest) = bytes.as_chunks::<4>();
    let values: Vec<f32> = words.iter().map(|&word| f32::from_le_bytes(word)).collect();
    match rest.is_empty() && values.iter().all(|value| value.is_finite()) {
        true => Ok(values),
        false => Err(FileError::Contents("a number is not finite")),
    }
}
