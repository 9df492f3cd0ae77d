SELECT lock, fence, until, boot FROM bus_fence WHERE endpoint = ?1
