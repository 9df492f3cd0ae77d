SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names') <> ''
