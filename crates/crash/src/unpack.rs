//! A tree as a folder of this machine.

use crate::content::Content;
use crate::operation::{FOLDER, Ino, ROOT, SYMLINK, TYPE};
use crate::tree::Tree;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};

/// Writes `tree` into `folder`, which is there and empty. Owners are kept where this user may set them; sockets, pipes
/// and device files are left out.
///
/// # Errors
/// When the folder can't be written; the error names no path.
pub fn unpack(tree: &Tree, folder: &Path) -> io::Result<()> {
    let mut made: HashMap<Ino, PathBuf> = HashMap::from([(ROOT, folder.to_path_buf())]);
    for (parent, name, ino) in tree.walk() {
        let (Some(node), Some(parent)) = (tree.node(ino), made.get(&parent)) else { continue };
        let path = parent.join(OsStr::from_bytes(name));
        if let Some(first) = made.get(&ino) {
            fs::hard_link(first, &path)?;
            continue;
        }
        match (node.mode & TYPE, node.bytes()) {
            (FOLDER, _) => fs::create_dir(&path)?,
            (SYMLINK, _) => {
                symlink(OsStr::from_bytes(&node.target()), &path)?;
                let _ = lchown(&path, Some(node.uid), Some(node.gid));
                continue;
            }
            (_, Some(content)) if node.is_file() => write(content, &path)?,
            _ => continue,
        }
        // Only root may give a file away.
        let _ = chown(&path, Some(node.uid), Some(node.gid));
        if !node.is_folder() {
            fs::set_permissions(&path, Permissions::from_mode(node.mode & !TYPE))?;
        }
        made.insert(ino, path);
    }
    // A folder that forbids writing is filled before it does.
    for (ino, path) in &made {
        if let Some(node) = tree.node(*ino).filter(|node| node.is_folder() && *ino != ROOT) {
            fs::set_permissions(path, Permissions::from_mode(node.mode & !TYPE))?;
        }
    }
    Ok(())
}

fn write(content: &Content, path: &Path) -> io::Result<()> {
    let file = File::create_new(path)?;
    for (offset, bytes) in content.pages() {
        file.write_all_at(bytes, offset)?;
    }
    file.set_len(content.size())
}
