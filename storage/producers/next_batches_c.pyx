# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Batches of producers that simply come next: whether one does, and what is then known of its producer.

It has no plain twin: ``ProducerState.check`` and ``ProducerState.accept`` do the same for every batch. The state stays in
``KnownProducers``, so calls of both can follow each other.

Thread: the partition's writer only.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcpy

from log_model.producers import KEYED_PRODUCER_ID_MIN, ProducerBatch
from storage.producers.producer_entry import BATCHES_KEPT, ProducerEntry

cdef enum:
    SEQUENCE_MASK = 0x7FFFFFFF
    # As ``known_producers`` packs an entry.
    SEQUENCE_AT = 2
    OFFSET_AT = 6
    TIMESTAMP_AT = 14
    USED_MS_AT = 22
    PACKED_BYTES = 30

cdef int64_t KEYED_MIN = KEYED_PRODUCER_ID_MIN
cdef Py_ssize_t KEPT = BATCHES_KEPT
cdef object new_tuple = tuple.__new__
cdef object NO_COORDINATOR = -1, NO_OFFSET = -1


cdef bint follows(known, ProducerPlace* place) except -1:
    """Return whether a batch is new and may be appended: its producer is unknown, or it has the next sequence of its epoch.

    ``check_batch`` allows no more than that, apart from the first batch of a newer epoch, and refuses nothing of it.
    """
    cdef PyObject* found = PyDict_GetItem(known.by_id, place.producer_id)
    cdef Py_ssize_t count, each
    if found == NULL:
        return True
    entry = <object>found
    if type(entry) is not ProducerEntry:
        # Packed: it stands for a key, which writes once.
        return False
    batches = <object>PyTuple_GET_ITEM(entry, 2)
    count = PyTuple_GET_SIZE(batches)
    if (
        not count
        or place.producer_id >= KEYED_MIN
        or <int64_t><object>PyTuple_GET_ITEM(entry, 1) != place.epoch
        or <int64_t><object>PyTuple_GET_ITEM(entry, 5) >= 0
    ):
        return False
    for each in range(count):
        batch = <object>PyTuple_GET_ITEM(batches, each)
        if <int64_t><object>PyTuple_GET_ITEM(batch, 0) == place.sequence:
            return False
    return place.sequence == ((<int64_t><object>PyTuple_GET_ITEM(batch, 1) + 1) & SEQUENCE_MASK)


cdef int note(known, ProducerPlace* place, int64_t record_count, base_offset, last_offset, timestamp, int64_t now_ms) except -1:
    """Note a batch that ``follows`` and is in the log now, as ``KnownProducers.put`` of ``ProducerEntry.after`` does."""
    cdef dict by_id = known.by_id
    cdef int64_t last_sequence = (place.sequence + record_count - 1) & SEQUENCE_MASK
    cdef PyObject* found
    cdef tuple batches
    producer_id = place.producer_id
    if place.producer_id >= KEYED_MIN and place.sequence == 0:
        by_id[producer_id] = packed(place.epoch, last_sequence, last_offset, timestamp, now_ms)
        return 0
    batch = new_tuple(ProducerBatch, (place.sequence, last_sequence, base_offset, last_offset, timestamp))
    found = PyDict_GetItem(by_id, producer_id)
    if found == NULL:
        batches, coordinator_epoch, transaction = (batch,), NO_COORDINATOR, NO_OFFSET
    else:
        entry = <object>found
        batches = (*<tuple><object>PyTuple_GET_ITEM(entry, 2), batch)
        if len(batches) > KEPT:
            batches = batches[len(batches) - KEPT :]
        coordinator_epoch, transaction = <object>PyTuple_GET_ITEM(entry, 4), <object>PyTuple_GET_ITEM(entry, 5)
        del by_id[producer_id]
        if known.oldest:
            known.moved.add(producer_id)
    known.used_ms[producer_id] = now_ms
    by_id[producer_id] = new_tuple(
        ProducerEntry, (producer_id, place.epoch, batches, timestamp, coordinator_epoch, transaction)
    )
    return 0


cdef bytes packed(int16_t epoch, int32_t last_sequence, int64_t last_offset, int64_t timestamp, int64_t now_ms):
    """Return what ``known_producers`` keeps of a key with one batch."""
    cdef bytes made = PyBytes_FromStringAndSize(NULL, PACKED_BYTES)
    cdef char* at = PyBytes_AS_STRING(made)
    memcpy(at, &epoch, sizeof(epoch))
    memcpy(at + SEQUENCE_AT, &last_sequence, sizeof(last_sequence))
    memcpy(at + OFFSET_AT, &last_offset, sizeof(last_offset))
    memcpy(at + TIMESTAMP_AT, &timestamp, sizeof(timestamp))
    memcpy(at + USED_MS_AT, &now_ms, sizeof(now_ms))
    return made
