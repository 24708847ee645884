//! `tidewater cluster`: groups and keepers of devices that replicate to each other, and their certificates.

use crate::args::cluster::{ClusterCommand, IdentityAddNode, IdentityCommand, IdentityInit};
use crate::failure::Failure;
use crate::{group, keeper, output};
use std::path::{Path, PathBuf};
use tidewater_serve::peers::authority::{Authority, AuthorityError, CA_KEY_FILE, Validity};

/// `tidewater cluster`.
///
/// # Errors
/// Those of the group and the keeper; of certificates, when files are there already, or can't be written.
pub fn command(of: &ClusterCommand) -> Result<(), Failure> {
    match of {
        ClusterCommand::Group(of) => group::command(of),
        ClusterCommand::Keeper(of) => keeper::command(of),
        ClusterCommand::Identity(IdentityCommand::Init(of)) | ClusterCommand::Init(of) => init(of),
        ClusterCommand::Identity(IdentityCommand::AddNode(of)) | ClusterCommand::AddNode(of) => add_node(of),
    }
}

fn place(folder: &Path, node: u8) -> PathBuf {
    folder.join(format!("node-{node}"))
}

fn refused(error: AuthorityError) -> Failure {
    let failure = Failure::usage(&error);
    match error {
        AuthorityError::Exists(_) => failure.help("choose another folder, or remove what is there"),
        _ => failure,
    }
}

fn init(of: &IdentityInit) -> Result<(), Failure> {
    let IdentityInit { ref folder, ref cluster, nodes, days, ca_days } = *of;
    let (valid, of_ca) = (Validity::days(days), Validity::days(ca_days));
    if of_ca.to < valid.to {
        return Err(Failure::usage("the CA would be valid for less long than its certificates")
            .help("give --ca-days at least --days"));
    }
    // Nothing is made if something is there.
    if let Some(there) = (0..nodes).map(|node| place(folder, node)).find(|place| place.exists()) {
        return Err(refused(AuthorityError::Exists(there)));
    }
    let authority = Authority::create(folder, cluster, of_ca).map_err(refused)?;
    for node in 0..nodes {
        authority.certify(&place(folder, node), node, valid, false).map_err(refused)?;
    }
    let (shown, key) = (folder.display(), folder.join(CA_KEY_FILE));
    output::print(&format!(
        "a CA for cluster {cluster:?} in {shown}, valid until {}\ncertificates of nodes 0 to {}, valid until {}\n\n\
         Copy {shown}/node-N to the machine of node N, readable by its device alone, and start it with\n  \
         --node N --cluster {cluster:?} --peer-identity node-N\nKeep {} away from the nodes: it makes certificates for \
         any of them.\n",
        of_ca.end(),
        nodes - 1,
        valid.end(),
        key.display(),
    ))
}

fn add_node(of: &IdentityAddNode) -> Result<(), Failure> {
    let IdentityAddNode { ref folder, node, renew, days } = *of;
    let valid = Validity::days(days);
    let authority = Authority::open(folder).map_err(|error| {
        Failure::usage(error).help("name the folder that `tidewater cluster identity init` made, with its ca.key")
    })?;
    let place = place(folder, node);
    authority.certify(&place, node, valid, renew).map_err(|error| {
        let failure = Failure::usage(&error);
        match error {
            AuthorityError::Exists(_) if !renew => failure.help("to give it a new certificate, add --renew"),
            AuthorityError::File(..) if renew => failure.help("to add this node, leave out --renew"),
            _ => failure,
        }
    })?;
    let what =
        if renew { ", over the old files: its device takes them up" } else { ", and start it with --peer-identity" };
    output::print(&format!(
        "a certificate for node {node} of cluster {:?}, valid until {}\nCopy {} to its machine{what}.\n",
        authority.cluster(),
        valid.end(),
        place.display(),
    ))
}
