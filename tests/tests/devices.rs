//! Served devices as a user meets them.

mod browser;
mod device_loss;
mod floods;
mod frames;
mod hardware;
mod lanes;
mod live;
mod locked;
mod log;
mod metrics;
mod outside;
mod owners;
mod rings;
mod serve;
mod services;
mod stored;
