//! The Python module `sclub._sclub`: the library's policies as Python objects, and the lab.
//!
//! Python's users are any hashable object and the library's are numbers: `names` maps one to the other,
//! and `ids` does so for items. `items` reads NumPy arrays into the layout that is scored. `policy` is
//! the class that all policies share. Dataclasses live in the Python part of the package.

mod classes;
mod engine;
mod errors;
mod features;
mod ids;
mod items;
mod lab;
mod lists;
mod look;
mod names;
mod plain;
mod policy;
mod saved;
mod speed;
mod work;

use pyo3::prelude::*;

/// The compiled part of the package.
#[pymodule]
mod _sclub {
    #[pymodule_export]
    use crate::classes::LinUcb;
    #[pymodule_export]
    use crate::features::PyTransform;
    #[pymodule_export]
    use crate::ids::item_id;
    #[pymodule_export]
    use crate::items::Items;
    #[pymodule_export]
    use crate::lab::{
        LabSetting, LabWorld, lab_columns, lab_evaluate, lab_field, lab_field_defaults, lab_paper,
        lab_paper_defaults, lab_policies, lab_read, lab_run, policy_of,
    };
    #[pymodule_export]
    use crate::names::check_users;
    #[pymodule_export]
    use crate::policy::Policy;
    #[pymodule_export]
    use crate::saved::{load, restore};
    #[pymodule_export]
    use crate::speed::seconds_in_rust;

    #[pymodule_init]
    fn init(module: &super::Bound<'_, super::PyModule>) -> super::PyResult<()> {
        use super::PyModuleMethods;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
