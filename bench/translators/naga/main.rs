// Translate kernels by naga with the options of wgpu-native: `translate FOLDER TARGET...`.
//
// Reads every NAME.wgsl of the folder. Its first line is `// workgroup SIZE`. Writes NAME.TARGET for the targets `msl`,
// `hlsl-fxc` (shader model 5.1) and `hlsl-dxc` (6.6). `msl-trusted` has neither checks of bounds nor loop counters.
// wgpu-native does not initialize workgroup memory. Prints a line for each kernel and target: the name, the target and
// the error, which is empty if there is none.

use naga::back::{hlsl, msl, pipeline_constants, PipelineConstants};
use naga::proc::index::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, StorageAccess};
use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, env, fs, panic};

const ENTRY: &str = "main";
const WORKGROUP: &str = "wg"; // the override that sets the size of workgroups

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let files = fs::read_dir(&arguments[0]).expect("the folder is readable");
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "wgsl"));
    paths.sort();
    panic::set_hook(Box::new(|_| {}));
    for path in paths {
        let parsed = panic::catch_unwind(|| read(&path)).unwrap_or(Err("naga panicked".into()));
        for target in &arguments[1..] {
            let translated = match &parsed {
                Err(error) => Err(error.clone()),
                Ok((module, info)) => panic::catch_unwind(|| translate(module, info, target))
                    .unwrap_or(Err("naga panicked".into())),
            };
            let error = match translated {
                Err(error) => error,
                Ok(text) => fs::write(path.with_extension(target), text).map_or_else(|e| e.to_string(), |()| "".into()),
            };
            let name = path.file_stem().unwrap().to_string_lossy();
            println!("{name}\t{target}\t{}", error.replace(['\n', '\t'], " "));
        }
    }
}

fn read(path: &Path) -> Result<(Module, ModuleInfo), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let size = text.lines().next().and_then(|line| line.strip_prefix("// workgroup ")).and_then(|s| s.parse().ok());
    let module = naga::front::wgsl::parse_str(&text).map_err(|error| error.emit_to_string(&text))?;
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_stages(naga::valid::ShaderStages::all());
    validator.subgroup_operations(naga::valid::SubgroupOperationSet::all());
    let info = validator.validate(&module).map_err(|error| format!("{:?}", error.into_inner()))?;
    let mut constants = PipelineConstants::default();
    if module.overrides.iter().any(|(_, each)| each.name.as_deref() == Some(WORKGROUP)) {
        constants.insert(WORKGROUP.into(), size.ok_or("the first line has no size of the workgroup")?);
    }
    let entry = Some((ShaderStage::Compute, ENTRY));
    let set = pipeline_constants::process_overrides(&module, &info, entry, &constants);
    let (module, info) = set.map_err(|error| format!("{error:?}"))?;
    Ok((module.into_owned(), info.into_owned()))
}

fn translate(module: &Module, info: &ModuleInfo, target: &str) -> Result<String, String> {
    match target {
        "msl" => to_msl(module, info, true),
        "msl-trusted" => to_msl(module, info, false),
        "hlsl-fxc" => to_hlsl(module, info, hlsl::ShaderModel::V5_1),
        "hlsl-dxc" => to_hlsl(module, info, hlsl::ShaderModel::V6_6),
        _ => Err(format!("{target} is not a target")),
    }
}

fn to_msl(module: &Module, info: &ModuleInfo, checked: bool) -> Result<String, String> {
    let mut resources = msl::EntryPointResources::default();
    let mut slot = 0;
    for (_, global) in module.global_variables.iter() {
        if let Some(binding) = global.binding {
            let mutable =
                matches!(global.space, AddressSpace::Storage { access } if access.contains(StorageAccess::STORE));
            let target = msl::BindTarget { buffer: Some(slot), mutable, ..Default::default() };
            resources.resources.insert(binding, target);
            slot += 1;
        }
    }
    resources.sizes_buffer = Some(slot);
    let policy = if checked { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
    let options = msl::Options {
        lang_version: (3, 1),
        per_entry_point_map: BTreeMap::from([(ENTRY.to_string(), resources)]),
        fake_missing_bindings: false,
        spirv_cross_compatibility: false,
        bounds_check_policies: BoundsCheckPolicies {
            index: policy,
            buffer: policy,
            image_load: policy,
            binding_array: BoundsCheckPolicy::Unchecked,
        },
        zero_initialize_workgroup_memory: false,
        force_loop_bounding: checked,
        ..Default::default()
    };
    let entry = Some((ShaderStage::Compute, ENTRY.to_string()));
    let pipeline = msl::PipelineOptions { entry_point: entry, ..Default::default() };
    let (text, translation) =
        msl::write_string(module, info, &options, &pipeline).map_err(|error| format!("{error:?}"))?;
    for name in translation.entry_point_names {
        name.map_err(|error| format!("{error:?}"))?;
    }
    Ok(text)
}

fn to_hlsl(module: &Module, info: &ModuleInfo, shader_model: hlsl::ShaderModel) -> Result<String, String> {
    let options = hlsl::Options {
        shader_model,
        fake_missing_bindings: true,
        special_constants_binding: Some(hlsl::BindTarget { space: 10, register: 0, ..Default::default() }),
        restrict_indexing: true,
        zero_initialize_workgroup_memory: false,
        force_loop_bounding: true,
        ..Default::default()
    };
    let entry = Some((ShaderStage::Compute, ENTRY.to_string()));
    let pipeline = hlsl::PipelineOptions { entry_point: entry };
    let mut text = String::new();
    let reflection = hlsl::Writer::new(&mut text, &options, &pipeline).write(module, info, None);
    for name in reflection.map_err(|error| format!("{error:?}"))?.entry_point_names {
        name.map_err(|error| format!("{error:?}"))?;
    }
    Ok(text)
}
