//! The bundled readers on rdkafka: three correct references and three teaching readers.
