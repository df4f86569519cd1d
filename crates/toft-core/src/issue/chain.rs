//! The critical path: the longest chain of unfinished issues that wait for each other.

use std::collections::{BTreeMap, BTreeSet};

use super::ready::Node;

/// The longest chain, from the issue that has to be done first to the one that is done last; of several as long, the one
/// with the lowest ids. An epic waits for its parts, and takes no work of its own while it has open ones: it links a chain and
/// does not lengthen it. Parts wait for what their epic needs. Issues in a circle of needs are left out.
#[must_use]
pub fn longest_chain(nodes: &[Node]) -> Vec<String> {
    let open: BTreeMap<&str, &Node> =
        nodes.iter().filter(|node| node.unfinished()).map(|node| (node.id.as_str(), node)).collect();
    let mut waits_for: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut wholes = BTreeSet::new();
    for (&id, node) in &open {
        let mut seen = BTreeSet::new();
        let mut next = Some(*node);
        // What an issue is part of lends it its needs.
        while let Some(at) = next.filter(|at| seen.insert(at.id.as_str())) {
            let needs = at.needs.iter().filter_map(|on| open.get_key_value(on.as_str()).map(|(on, _)| *on));
            waits_for.entry(id).or_default().extend(needs);
            next = at.parent.as_deref().and_then(|parent| open.get(parent).copied());
        }
        if let Some(whole) = node.parent.as_deref().and_then(|parent| open.get(parent)).filter(|whole| whole.epic) {
            waits_for.entry(whole.id.as_str()).or_default().insert(id);
            wholes.insert(whole.id.as_str());
        }
    }
    let mut waited_by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, on) in &waits_for {
        on.iter().for_each(|on| waited_by.entry(on).or_default().push(id));
    }
    let mut left: BTreeMap<&str, usize> = waits_for.iter().map(|(id, on)| (*id, on.len())).collect();
    let mut free: Vec<&str> = left.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    // The length of the longest chain that ends with an issue, and the issue before it.
    let mut best: BTreeMap<&str, (usize, Option<&str>)> = BTreeMap::new();
    while let Some(id) = free.pop() {
        let before = waits_for[id].iter().rev().map(|on| (best[on].0, *on)).max_by_key(|(length, _)| *length);
        let own = usize::from(!wholes.contains(id));
        best.insert(id, (before.map_or(0, |(length, _)| length) + own, before.map(|(_, on)| on)));
        for next in waited_by.get(id).into_iter().flatten() {
            if let Some(count) = left.get_mut(next) {
                *count -= 1;
                if *count == 0 {
                    free.push(next);
                }
            }
        }
    }
    let mut chain = Vec::new();
    let mut at = best.iter().rev().max_by_key(|(_, (length, _))| *length).map(|(id, _)| *id);
    while let Some(id) = at {
        if !wholes.contains(id) {
            chain.push(id.to_owned());
        }
        at = best[id].1;
    }
    chain.reverse();
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, needs: &[&str]) -> Node {
        let needs = needs.iter().map(|&on| on.to_owned()).collect();
        Node { id: id.into(), status: "open".into(), needs, ..Node::default() }
    }

    #[test]
    fn the_longest_chain_of_open_issues_from_first_to_last() {
        let mut nodes =
            vec![node("a", &[]), node("b", &["a"]), node("c", &["b"]), node("d", &["a"]), node("e", &["x"])];
        assert_eq!(longest_chain(&nodes), ["a", "b", "c"]);
        nodes[1].status = "closed".into();
        assert_eq!(longest_chain(&nodes), ["a", "d"]);
        assert!(longest_chain(&[]).is_empty());
    }

    #[test]
    fn epics_link_and_do_not_lengthen() {
        let part = |id: &str| Node { parent: Some("epic".into()), ..node(id, &[]) };
        let epic = Node { epic: true, ..node("epic", &["first"]) };
        let nodes = [node("first", &[]), epic, part("one"), part("two"), node("last", &["epic"])];
        assert_eq!(longest_chain(&nodes), ["first", "one", "last"]);
    }

    #[test]
    fn a_circle_is_left_out() {
        let nodes = [node("a", &["b"]), node("b", &["a"]), node("c", &["a"]), node("d", &[]), node("e", &["d"])];
        assert_eq!(longest_chain(&nodes), ["d", "e"]);
    }
}
