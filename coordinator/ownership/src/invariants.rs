//! What holds after every command.
