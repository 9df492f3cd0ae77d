SELECT id, owner, fence, lease, renewed_at, ended, reason, note, renewed_at + lease - {schema}.clock_us()
FROM {schema}.lock WHERE id = $1
