//! What every store must do, as checks that panic.

use std::io::Read;

use super::{Fate, Row, Store};

/// A store under test, with the ways there are to end it.
pub trait Subject {
    /// The store.
    fn store(&self) -> &dyn Store;

    /// Ends it without a word, as a crash does, and opens it again.
    #[must_use]
    fn crash(self: Box<Self>) -> Box<dyn Subject>;

    /// A new store with what `backup` holds.
    fn restored(&self, backup: &[u8]) -> Box<dyn Subject>;
}

/// Runs all checks, each on an empty store of its own.
pub fn run(new: &dyn Fn() -> Box<dyn Subject>) {
    for check in [
        empty,
        appends,
        many_batches,
        refusals,
        identity,
        epochs,
        snapshots,
        failed_snapshot,
        rewrites,
        rewrites_again,
        backups,
        recovers,
        closes,
        reads_while_written,
    ] {
        check(new());
    }
}

/// All events, and the notes each with its number.
type Content = (Vec<Vec<u8>>, Vec<(u64, Vec<u8>)>);

fn content(store: &dyn Store) -> Content {
    let mut events = Vec::new();
    let mut notes = Vec::new();
    store
        .events(0, &mut |number, event| {
            events.push(event.to_vec());
            assert_eq!(number, events.len() as u64);
            Ok(())
        })
        .unwrap();
    store
        .notes(&mut |after, note| {
            notes.push((after, note.to_vec()));
            Ok(())
        })
        .unwrap();
    assert_eq!(store.last(), events.len() as u64);
    (events, notes)
}

fn snapshot(store: &dyn Store, at: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut from = store.open_snapshot(at).unwrap();
    from.read_to_end(&mut bytes).unwrap();
    bytes
}

fn put(store: &dyn Store, at: u64, bytes: &[u8]) {
    store
        .put_snapshot(at, &mut |out| out.write_all(bytes))
        .unwrap();
}

fn owned(rows: &[&[u8]]) -> Vec<Vec<u8>> {
    rows.iter().map(|r| r.to_vec()).collect()
}

fn empty(subject: Box<dyn Subject>) {
    let subject = subject.crash();
    let store = subject.store();
    assert_eq!(content(store), Content::default());
    assert_eq!((store.last(), store.base()), (0, 0));
    assert!(store.snapshots().unwrap().is_empty());
    assert!(store.open_snapshot(0).is_err());
    assert_eq!(store.identity().unwrap(), None);
    assert_eq!(store.check().unwrap().events, 0);
    assert_eq!(store.recover().unwrap(), 0);
    store.append(&[], &[]).unwrap();
    assert_eq!(content(store), Content::default());
}

fn appends(subject: Box<dyn Subject>) {
    let store = subject.store();
    store.append(&[b"one", b"two"], &[]).unwrap();
    assert_eq!(store.last(), 2);
    store.append(&[], &[b"a", b""]).unwrap();
    store.append(&[b"three"], &[b"b"]).unwrap();
    store.append(&[], &[b"c"]).unwrap();
    let expected = (
        owned(&[b"one", b"two", b"three"]),
        vec![
            (2, b"a".to_vec()),
            (2, vec![]),
            (2, b"b".to_vec()),
            (3, b"c".to_vec()),
        ],
    );
    assert_eq!(content(store), expected);
    let mut late = Vec::new();
    store
        .events(1, &mut |number, event| {
            late.push((number, event.to_vec()));
            Ok(())
        })
        .unwrap();
    assert_eq!(late, [(2, b"two".to_vec()), (3, b"three".to_vec())]);
    for after in [3, 4, u64::MAX] {
        store.events(after, &mut |_, _| panic!("none")).unwrap();
    }
    assert_eq!(store.check().unwrap().events, 3);
    let subject = subject.crash();
    assert_eq!(content(subject.store()), expected);
    subject.store().append(&[b"four"], &[]).unwrap();
    assert_eq!(subject.store().last(), 4);
    let subject = subject.crash();
    assert_eq!(content(subject.store()).0[3], b"four");
}

fn many_batches(mut subject: Box<dyn Subject>) {
    let mut expected = Content::default();
    for round in 0..60_u64 {
        let rows: Vec<Vec<u8>> = (0..round % 7)
            .map(|i| vec![round as u8; 1 + (i * 997 % 3000) as usize])
            .collect();
        let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        let (events, notes) = rows.split_at(rows.len() / 2);
        let after = expected.0.len() as u64;
        expected.1.extend(notes.iter().map(|n| (after, n.to_vec())));
        expected.0.extend(owned(events));
        subject.store().append(events, notes).unwrap();
        if round % 20 == 19 {
            subject = subject.crash();
        }
    }
    assert!(content(subject.store()) == expected);
    for after in 0..expected.0.len() {
        let mut next = after as u64 + 1;
        let mut stop = 3;
        let outcome = subject.store().events(after as u64, &mut |number, event| {
            assert_eq!(number, next);
            assert!(event == expected.0[number as usize - 1]);
            next += 1;
            stop -= 1;
            match stop {
                0 => Err(super::StoreError::Refused("enough".into())),
                _ => Ok(()),
            }
        });
        assert_eq!(outcome.is_err(), expected.0.len() - after >= 3);
    }
}

fn refusals(subject: Box<dyn Subject>) {
    let store = subject.store();
    store.append(&[b"one"], &[]).unwrap();
    assert!(store.append(&[b"two", b""], &[b"note"]).is_err());
    assert_eq!(content(store), (owned(&[b"one"]), vec![]));
    assert!(store.put_snapshot(2, &mut |_| Ok(())).is_err());
    assert!(store.rewrite(1, &mut |_| Ok(Fate::Drop)).is_err());
    assert!(store.open_snapshot(1).is_err());
    store.recover().unwrap();
    store.append(&[b"two"], &[]).unwrap();
    assert_eq!(content(store), (owned(&[b"one", b"two"]), vec![]));
}

fn identity(subject: Box<dyn Subject>) {
    subject.store().set_identity(b"me").unwrap();
    assert!(subject.store().set_identity(b"you").is_err());
    let subject = subject.crash();
    assert_eq!(subject.store().identity().unwrap(), Some(b"me".to_vec()));
    assert!(subject.store().set_identity(b"you").is_err());
}

fn epochs(mut subject: Box<dyn Subject>) {
    let first = subject.store().epoch();
    assert!(first >= 1);
    for round in 1..5 {
        if round == 3 {
            subject.store().close().unwrap();
        }
        subject = subject.crash();
        assert_eq!(subject.store().epoch(), first + round);
    }
}

fn snapshots(subject: Box<dyn Subject>) {
    let store = subject.store();
    let large: Vec<u8> = (0..3_000_000_u64).map(|i| ((i * i) >> 5) as u8).collect();
    store.append(&[b"one", b"two", b"three"], &[]).unwrap();
    put(store, 1, b"first");
    assert_eq!(snapshot(store, 1), b"first");
    put(store, 2, &large);
    let mut old = store.open_snapshot(2).unwrap();
    put(store, 3, b"");
    assert_eq!(store.snapshots().unwrap().last(), Some(&3));
    let mut bytes = Vec::new();
    old.read_to_end(&mut bytes).unwrap();
    assert!(bytes == large, "a snapshot in use stays");
    put(store, 3, &large);
    let subject = subject.crash();
    assert!(snapshot(subject.store(), 3) == large);
    subject.store().check().unwrap();
}

fn failed_snapshot(subject: Box<dyn Subject>) {
    let store = subject.store();
    store.append(&[b"one", b"two"], &[]).unwrap();
    put(store, 1, b"good");
    let outcome = store.put_snapshot(2, &mut |out| {
        out.write_all(&[7; 2_000_000])?;
        Err(std::io::Error::other("no"))
    });
    assert!(outcome.unwrap_err().to_string().contains("no"));
    assert_eq!(store.snapshots().unwrap(), [1]);
    let subject = subject.crash();
    assert_eq!(snapshot(subject.store(), 1), b"good");
    assert_eq!(subject.store().snapshots().unwrap(), [1]);
}

fn rewrites(subject: Box<dyn Subject>) {
    let store = subject.store();
    store
        .append(&[b"one", b"two", b"three"], &[b"a", b"b"])
        .unwrap();
    store.append(&[b"four"], &[b"c"]).unwrap();
    store.append(&[b"five"], &[b"d"]).unwrap();
    store.append(&[], &[b"e"]).unwrap();
    put(store, 2, b"state two");
    put(store, 4, b"state four");
    let mut seen = Vec::new();
    store
        .rewrite(4, &mut |row| {
            seen.push(match row {
                Row::Event(number, bytes) => (number, bytes.to_vec()),
                Row::Note(bytes) => (0, bytes.to_vec()),
            });
            Ok(match row {
                Row::Event(2, _) | Row::Note(b"a") => Fate::Drop,
                Row::Event(3, _) => Fate::Replace(b"3".to_vec()),
                Row::Note(b"c") => Fate::Replace(b"C".to_vec()),
                _ => Fate::Keep,
            })
        })
        .unwrap();
    let row = |number, bytes: &[u8]| (number, bytes.to_vec());
    assert_eq!(
        seen,
        [
            row(0, b"a"),
            row(0, b"b"),
            row(1, b"one"),
            row(2, b"two"),
            row(3, b"three"),
            row(0, b"c"),
            row(4, b"four"),
        ]
    );
    let expected = (
        owned(&[b"one", b"", b"3", b"four", b"five"]),
        vec![row(0, b"b"), row(3, b"C"), row(4, b"d"), row(5, b"e")],
    );
    assert_eq!(content(store), expected);
    assert_eq!((store.base(), store.last()), (4, 5));
    assert_eq!(store.snapshots().unwrap(), [4]);
    assert!(store.put_snapshot(3, &mut |_| Ok(())).is_err());
    let subject = subject.crash();
    let store = subject.store();
    assert_eq!(content(store), expected);
    assert_eq!(store.base(), 4);
    store.append(&[b"six"], &[]).unwrap();
    put(store, 5, b"state five");
    put(store, 6, b"state six");
    assert_eq!(store.snapshots().unwrap(), [4, 6]);
    assert_eq!(snapshot(store, 4), b"state four");
    assert_eq!(store.check().unwrap().events, 6);
}

fn rewrites_again(subject: Box<dyn Subject>) {
    let store = subject.store();
    store.append(&[b"one", b"two", b"three"], &[]).unwrap();
    put(store, 2, b"two");
    store.rewrite(2, &mut |_| Ok(Fate::Drop)).unwrap();
    assert!(store.rewrite(1, &mut |_| Ok(Fate::Drop)).is_err());
    put(store, 3, b"three");
    let mut seen = Vec::new();
    store
        .rewrite(3, &mut |row| {
            if let Row::Event(number, bytes) = row {
                seen.push((number, bytes.len()));
            }
            Ok(Fate::Keep)
        })
        .unwrap();
    assert_eq!(seen, [(1, 0), (2, 0), (3, 5)]);
    assert_eq!(content(store).0, owned(&[b"", b"", b"three"]));
    assert_eq!(store.base(), 3);
    let failing = store.rewrite(3, &mut |_| Err(super::StoreError::Refused("no".into())));
    assert_eq!(failing.unwrap_err().to_string(), "no");
    let subject = subject.crash();
    assert_eq!(content(subject.store()).0, owned(&[b"", b"", b"three"]));
    assert_eq!(subject.store().base(), 3);
    assert_eq!(snapshot(subject.store(), 3), b"three");
}

fn backups(subject: Box<dyn Subject>) {
    let store = subject.store();
    let mut nothing = Vec::new();
    store.backup(&mut nothing).unwrap();
    assert_eq!(content(subject.restored(&nothing).store()).0.len(), 0);
    store.set_identity(b"me").unwrap();
    for round in 0..40_u8 {
        store
            .append(&[&[1, round], &[round; 300]], &[&[round]])
            .unwrap();
    }
    put(store, 30, b"thirty");
    store
        .rewrite(30, &mut |row| {
            Ok(match row {
                Row::Event(n, _) if n % 5 == 0 => Fate::Drop,
                Row::Note([n]) if n % 2 == 0 => Fate::Drop,
                _ => Fate::Keep,
            })
        })
        .unwrap();
    put(store, 70, &[9; 2_500_000]);
    let mut backup = Vec::new();
    store.backup(&mut backup).unwrap();
    let expected = content(store);
    store.append(&[b"later"], &[]).unwrap();
    let copy = subject.restored(&backup);
    let copied = copy.store();
    assert!(content(copied) == expected);
    assert_eq!(copied.base(), 30);
    assert_eq!(copied.identity().unwrap(), Some(b"me".to_vec()));
    assert_eq!(copied.snapshots().unwrap(), [30, 70]);
    assert_eq!(snapshot(copied, 30), b"thirty");
    assert!(snapshot(copied, 70) == [9; 2_500_000]);
    assert_eq!(copied.epoch(), store.epoch() + 1);
    assert_eq!(copied.check().unwrap().events, 80);
    copied.append(&[b"another"], &[]).unwrap();
    let mut again = Vec::new();
    copied.backup(&mut again).unwrap();
    let copy = copy.restored(&again);
    assert_eq!(content(copy.store()).0[80], b"another");
    assert_eq!(content(store).0[80], b"later");
}

fn recovers(subject: Box<dyn Subject>) {
    let store = subject.store();
    store.append(&[b"one"], &[b"a"]).unwrap();
    assert_eq!(store.recover().unwrap(), 1);
    store.append(&[b"two"], &[]).unwrap();
    assert_eq!(store.recover().unwrap(), 2);
    assert_eq!(
        content(store),
        (owned(&[b"one", b"two"]), vec![(0, b"a".to_vec())])
    );
}

fn closes(subject: Box<dyn Subject>) {
    let store = subject.store();
    store.append(&[b"one"], &[b"a"]).unwrap();
    store.close().unwrap();
    assert!(store.append(&[b"two"], &[]).is_err());
    assert_eq!(content(store).0, owned(&[b"one"]));
    store.close().unwrap();
    let subject = subject.crash();
    subject.store().append(&[b"two"], &[]).unwrap();
    let expected = (owned(&[b"one", b"two"]), vec![(0, b"a".to_vec())]);
    assert_eq!(content(subject.store()), expected);
    subject.store().close().unwrap();
    let subject = subject.crash();
    assert_eq!(content(subject.store()), expected);
    assert_eq!(subject.store().check().unwrap().events, 2);
}

/// One thread appends, takes snapshots, rewrites and backs up; another reads all the while.
fn reads_while_written(subject: Box<dyn Subject>) {
    let store = subject.store();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let mut next = 1;
                store
                    .events(0, &mut |number, event| {
                        assert_eq!(number, next);
                        next += 1;
                        assert!(event.is_empty() || event == number.to_le_bytes());
                        Ok(())
                    })
                    .unwrap();
                let mut before = 0;
                store
                    .notes(&mut |after, note| {
                        assert!(after >= before);
                        before = after;
                        assert_eq!(note, after.to_le_bytes());
                        Ok(())
                    })
                    .unwrap();
            }
        });
        for number in 1..=60_u64 {
            let note = (number - 1).to_le_bytes();
            store.append(&[&number.to_le_bytes()], &[&note]).unwrap();
            match number % 20 {
                6 => put(store, number, b"state"),
                7 => store
                    .rewrite(number - 1, &mut |row| {
                        Ok(match row {
                            Row::Event(n, _) if n % 3 == 0 => Fate::Drop,
                            Row::Note([n, ..]) if n % 4 == 0 => Fate::Drop,
                            _ => Fate::Keep,
                        })
                    })
                    .unwrap(),
                13 => store.backup(&mut std::io::sink()).unwrap(),
                17 => assert_eq!(store.check().unwrap().events, number),
                _ => {}
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
}
