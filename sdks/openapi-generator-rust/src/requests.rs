//! Requests whose optional parameters are all absent but for those that each step of the program has.
//!
//! The generated structs have no `Default`: with these functions `..to(topic, records)` fills in the rest.

use std::path::Path;

use rollway_client::apis::records_api::{
    FetchRecordBatchesParams, FetchRecordLinesParams, FetchRecordsParams, ProduceRecordBatchesParams,
    ProduceRecordLinesParams, ProduceRecordsParams,
};
use rollway_client::models::{Isolation, ProducedRecord, RecordList};

pub fn to(topic: &str, records: Vec<ProducedRecord>) -> ProduceRecordsParams {
    ProduceRecordsParams {
        topic: topic.to_string(),
        partition: 0,
        record_list: RecordList::new(records),
        acks: None,
        durability: None,
        timeout_ms: None,
        expected_offset: None,
        encoding: None,
        producer_id: None,
        producer_epoch: None,
        base_sequence: None,
        idempotency_key: None,
        transactional_id: None,
    }
}

pub fn from(topic: &str) -> FetchRecordsParams {
    FetchRecordsParams {
        topic: topic.to_string(),
        partition: 0,
        offset: Some("earliest".to_string()),
        timestamp: None,
        tail: None,
        end_offset: None,
        until: None,
        max_records: None,
        max_bytes: Some(100_000_000),
        wait_ms: None,
        min_bytes: None,
        isolation: None,
        on_truncated: None,
        topic_id: None,
        encoding: None,
        if_none_match: None,
    }
}

pub fn committed(topic: &str) -> FetchRecordsParams {
    FetchRecordsParams { isolation: Some(Isolation::ReadCommitted), ..from(topic) }
}

pub fn batches_to(topic: &str, body: &Path) -> ProduceRecordBatchesParams {
    ProduceRecordBatchesParams {
        topic: topic.to_string(),
        partition: 0,
        body: body.to_path_buf(),
        acks: None,
        durability: None,
        timeout_ms: None,
        expected_offset: None,
        idempotency_key: None,
        transactional_id: None,
    }
}

pub fn batches_from(topic: &str) -> FetchRecordBatchesParams {
    FetchRecordBatchesParams {
        topic: topic.to_string(),
        partition: 0,
        offset: Some("earliest".to_string()),
        timestamp: None,
        tail: None,
        end_offset: None,
        until: None,
        max_records: None,
        max_bytes: None,
        wait_ms: None,
        min_bytes: None,
        isolation: None,
        on_truncated: None,
        topic_id: None,
        if_none_match: None,
    }
}

pub fn lines_to(topic: &str, body: &Path) -> ProduceRecordLinesParams {
    ProduceRecordLinesParams {
        topic: topic.to_string(),
        partition: 0,
        body: body.to_path_buf(),
        acks: None,
        durability: None,
        timeout_ms: None,
        expected_offset: None,
        encoding: None,
        producer_id: None,
        producer_epoch: None,
        base_sequence: None,
        idempotency_key: None,
    }
}

pub fn lines_from(topic: &str) -> FetchRecordLinesParams {
    FetchRecordLinesParams {
        topic: topic.to_string(),
        partition: 0,
        offset: Some("earliest".to_string()),
        timestamp: None,
        tail: None,
        end_offset: None,
        until: None,
        max_records: None,
        max_bytes: None,
        wait_ms: None,
        min_bytes: None,
        isolation: None,
        on_truncated: None,
        topic_id: None,
        encoding: None,
        if_none_match: None,
    }
}
